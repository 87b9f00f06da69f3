// The values of a chart under the pointer, or of the bucket chosen with the arrow keys. They are
// read from the table of the chart.
let shown; // the chart and the number of the bucket

const tip = document.createElement("div");
tip.className = "chart-tip";
tip.setAttribute("role", "status");
tip.hidden = true;
document.body.append(tip);

const tableOf = (chart) => chart.closest("figure").querySelector("table");

function texts(row) {
  return [...row.cells].map((cell) => cell.textContent.trim());
}

function show(chart, number) {
  const table = tableOf(chart);
  const rows = table.tBodies[0].rows;
  const at = Math.min(Math.max(number, 0), rows.length - 1);
  const [time, ...values] = texts(rows[at]);
  const labels = texts(table.tHead.rows[0]).slice(1);
  const lines = [time, ...values.map((value, place) => `${labels[place]}: ${value}`)];
  if (lines.join("\n") !== tip.innerText) {
    tip.replaceChildren(
      ...lines.map((text) => Object.assign(document.createElement("div"), { textContent: text })),
    );
  }
  tip.hidden = false;
  const box = chart.getBoundingClientRect();
  const middle = (at + 0.5) / rows.length;
  const left = box.left + middle * box.width - tip.offsetWidth / 2;
  tip.style.left = `${Math.min(Math.max(left, 8), innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${box.top + scrollY - tip.offsetHeight - 2}px`;
  const cursor = chart.querySelector(".chart-cursor");
  cursor.setAttribute("x1", `${middle * 100}%`);
  cursor.setAttribute("x2", `${middle * 100}%`);
  cursor.setAttribute("visibility", "visible");
  if (shown && shown.chart !== chart) hideCursor();
  shown = { chart, at };
}

function hideCursor() {
  shown?.chart.querySelector(".chart-cursor").setAttribute("visibility", "hidden");
}

function hide() {
  hideCursor();
  shown = undefined;
  tip.hidden = true;
}

function bucketAt(chart, x) {
  const box = chart.getBoundingClientRect();
  return Math.floor(((x - box.left) / box.width) * tableOf(chart).tBodies[0].rows.length);
}

document.addEventListener("pointermove", (event) => {
  const chart = event.target.closest?.("[data-chart]");
  if (chart) show(chart, bucketAt(chart, event.clientX));
  else if (shown && shown.chart !== document.activeElement) hide();
});
document.addEventListener("focusin", (event) => {
  if (event.target.matches("[data-chart]:focus-visible")) show(event.target, Infinity);
});
document.addEventListener("focusout", (event) => event.target.matches("[data-chart]") && hide());
document.addEventListener("keydown", (event) => {
  if (!shown || event.target !== shown.chart) return;
  const to = { ArrowLeft: shown.at - 1, ArrowRight: shown.at + 1, Home: 0, End: Infinity }[event.key];
  if (event.key === "Escape") hide();
  if (to === undefined) return;
  event.preventDefault();
  show(shown.chart, to);
});
document.addEventListener("onefold:refreshed", () => {
  if (!shown) return;
  if (shown.chart.isConnected) show(shown.chart, shown.at);
  else hide();
});
