// Times in the visitor's zone, and "3 min ago". The server sends them in UTC, and in English.
const { timeZone } = new Intl.DateTimeFormat().resolvedOptions();
const format = new Intl.DateTimeFormat("en-GB", {
  year: "numeric",
  month: "2-digit",
  day: "2-digit",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  timeZoneName: "short",
});
const relative = new Intl.RelativeTimeFormat("en-GB", { numeric: "auto", style: "short" });
const units = [
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
  ["second", 1],
];

function ago(moment) {
  const seconds = (moment - Date.now()) / 1000;
  const [unit, size] = units.find(([, size]) => Math.abs(seconds) >= size) ?? units[3];
  return relative.format(Math.round(seconds / size), unit);
}

// The same form as the server's.
function texts(moment) {
  const part = Object.fromEntries(format.formatToParts(moment).map(({ type, value }) => [type, value]));
  const date = `${part.year}-${part.month}-${part.day}`;
  const axis = `${part.hour}:${part.minute}`;
  return { date, axis, clock: `${axis} ${part.timeZoneName}`, full: `${date} ${axis}:${part.second} ${part.timeZoneName}` };
}

function shown({ dataset, attributes }) {
  if (dataset.time === "zone") return timeZone;
  // In a chart it is an SVG text, not a <time>.
  const moment = new Date(attributes.datetime.value);
  return dataset.time === "ago" ? ago(moment) : texts(moment)[dataset.time];
}

export function showTimes(root = document) {
  for (const element of root.querySelectorAll("[data-time]")) {
    const text = shown(element);
    if (element.textContent !== text) element.textContent = text;
  }
}

// Filters by time: the visitor writes and reads local times, the address has those of UTC.
export function showFilters() {
  for (const input of document.querySelectorAll("[data-utc]")) {
    const moment = new Date(`${input.defaultValue}Z`);
    if (!Number.isNaN(moment.valueOf())) input.value = `${texts(moment).date}T${texts(moment).axis}`;
    input.form.addEventListener("formdata", ({ formData }) => {
      if (input.value) formData.set(input.name, new Date(input.value).toISOString().slice(0, 16));
    });
  }
}
