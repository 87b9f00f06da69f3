// Times in the visitor's zone, and "3 min ago". The server sends them in UTC.
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });
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

const formats = { ago, clock: clock.format };

export function showTimes(root = document) {
  for (const element of root.querySelectorAll("[data-time]")) {
    // In a chart it is an SVG text, not a <time>.
    const moment = new Date(element.getAttribute("datetime"));
    const text = (formats[element.dataset.time] ?? full.format)(moment);
    if (element.textContent !== text) element.textContent = text;
    if (element.title !== full.format(moment)) element.title = full.format(moment);
  }
}
