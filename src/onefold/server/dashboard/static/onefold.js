// What every page has: shortcuts, theme, toasts, dialogs, times. Live pages: live.js.
import "./bulk.js";
import { startLive } from "./live.js";
import { showFilters, showTimes } from "./times.js";

const byId = (id) => document.getElementById(id);

function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("onefold-theme", root.dataset.theme);
}

export function toast(text, failed = false) {
  const made = document.createElement("div");
  made.className = failed ? "toast failed" : "toast";
  made.append(Object.assign(document.createElement("p"), { textContent: text }));
  byId("toasts")?.append(made);
  fade(made);
}

function fade(element) {
  if (!element.classList.contains("failed")) setTimeout(() => element.remove(), 6000);
}

function moveRow(step) {
  const links = [...document.querySelectorAll("[data-rows] .row-link")];
  if (!links.length) return;
  const row = document.activeElement?.closest("tr");
  const at = links.findIndex((link) => link.closest("tr") === row);
  const next = at < 0 ? (step > 0 ? 0 : links.length - 1) : at + step;
  links[Math.min(Math.max(next, 0), links.length - 1)].focus();
}

const shortcuts = {
  "/": () => byId("search")?.focus(),
  j: () => moveRow(1),
  k: () => moveRow(-1),
  t: toggleTheme,
  "?": () => byId("help")?.showModal(),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea, dialog")) {
    if (event.key === "Escape" && event.target.id === "search") event.target.blur();
    return;
  }
  const run = shortcuts[event.key];
  if (!run) return;
  event.preventDefault();
  run();
});

document.addEventListener("click", async (event) => {
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    try {
      await navigator.clipboard.writeText(copy.dataset.copy);
      toast("Copied.");
    } catch {
      toast("The browser did not allow to copy.", true);
    }
    return;
  }
  if (event.target.closest("[data-dismiss]")) {
    event.target.closest(".toast").remove();
    return;
  }
  // A click anywhere in a row opens it, unless a text is selected.
  const row = event.target.closest("[data-rows] tbody tr");
  if (row && !event.target.closest("a, button, input, label") && !String(getSelection())) {
    row.querySelector(".row-link")?.click();
  }
});

// The second half of a double click in a dialog, which the first has closed, must not reach what is
// behind it.
let inDialog = false;
document.addEventListener(
  "click",
  (event) => {
    if (event.detail < 2) inDialog = Boolean(event.target.closest("dialog"));
    else if (inDialog && !event.target.closest("dialog")) {
      event.preventDefault();
      event.stopImmediatePropagation();
    }
  },
  true,
);

// A button named "confirm" asks its value first. Without the field "confirmed", the server asks.
document.addEventListener("submit", (event) => {
  const { target: form, submitter } = event;
  if (submitter?.name !== "confirm" || form.elements.confirmed) return;
  const dialog = byId("confirm");
  event.preventDefault();
  byId("confirm-text").textContent = submitter.value;
  dialog.returnValue = "no";
  dialog.addEventListener(
    "close",
    () => {
      if (dialog.returnValue !== "yes") return;
      const field = { type: "hidden", name: "confirmed", value: "yes" };
      form.append(Object.assign(document.createElement("input"), field));
      form.requestSubmit(submitter);
    },
    { once: true },
  );
  dialog.showModal();
});

// A response with a secret is sent once: a second click must not take the place of the first.
document.addEventListener("submit", (event) => {
  if (event.defaultPrevented || !("once" in event.target.dataset)) return;
  if (event.target.dataset.once === "sent") event.preventDefault();
  event.target.dataset.once = "sent";
});

byId("theme")?.addEventListener("click", toggleTheme);
byId("help-button")?.addEventListener("click", shortcuts["?"]);
document.querySelectorAll(".toast").forEach(fade);

// A notice is shown once: without it in the address, a reload does not repeat it.
const address = new URL(location.href);
if (address.searchParams.has("notice")) {
  address.searchParams.delete("notice");
  history.replaceState(null, "", address);
}

showTimes();
showFilters();
setInterval(showTimes, 10_000);
startLive(document.body.dataset.live);
if (document.querySelector("[data-chart]")) await import("./charts.js");
document.documentElement.dataset.ready = "yes";
