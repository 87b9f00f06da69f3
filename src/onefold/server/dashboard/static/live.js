// Live pages: after an event, fetch this page again and change what differs in [data-refresh].
// Elements stay the same where they can, so focus, selection and scroll stay, too.
import { showTimes } from "./times.js";

const PAUSE = 1000; // between two refreshes
const POLL = 5000; // without a stream
const NAMES = [
  "jobs.enqueued",
  "jobs.duplicate",
  "job.started",
  "job.ended",
  "job.redelivered",
  "key.answered",
  "queue.counted",
  "leases.expired",
  "write.fenced",
  "gap",
];

let stopped = false;
let waiting = false;
let polls = false;
let last = 0;

const keyOf = (node) => node.id || node.dataset?.key || "";

function sameKind(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);
}

// Make the children of `old` like those of `fresh`.
export function morph(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) return;
  for (const { name } of [...old.attributes]) {
    // What the visitor has opened stays open.
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.nodeName === "INPUT" && old.type === "hidden") old.value = fresh.value;
  const keyed = new Map();
  for (const child of old.children) if (keyOf(child)) keyed.set(keyOf(child), child);
  let at = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const known = keyed.get(keyOf(wanted));
    if (known && known !== at && sameKind(known, wanted)) {
      old.insertBefore(known, at);
      morph(known, wanted);
    } else if (at && sameKind(at, wanted)) {
      const next = at.nextSibling;
      morph(at, wanted);
      at = next;
    } else {
      old.insertBefore(wanted, at);
      if (wanted.dataset?.key) wanted.classList.add("is-new");
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

async function refresh() {
  const response = await fetch(location.href, { headers: { "Onefold-Fragment": "1" } });
  if (response.status === 401) {
    location.reload(); // the session has ended: the server shows the login
    return;
  }
  if (response.status >= 500) throw new Error(response.statusText);
  if (!response.ok || stopped) return;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  showTimes(fresh);
  if (stopped) return;
  for (const part of document.querySelectorAll("[data-refresh]")) {
    const found = fresh.getElementById(part.id);
    if (found) morph(part, document.adoptNode(found));
  }
  document.dispatchEvent(new CustomEvent("onefold:refreshed"));
}

function schedule() {
  if (waiting || stopped || document.hidden) return;
  waiting = true;
  setTimeout(
    async () => {
      waiting = false;
      last = Date.now();
      try {
        await refresh();
        if (polls) state("Live");
      } catch {
        state("Offline");
      }
    },
    Math.max(0, last + PAUSE - Date.now()),
  );
}

function state(text) {
  const element = document.getElementById("live");
  if (!element) return;
  element.hidden = false;
  element.dataset.state = text.toLowerCase();
  element.querySelector(".live-text").textContent = text;
}

function poll() {
  polls = true;
  setInterval(schedule, POLL);
}

export function startLive(source) {
  if (!source || !document.querySelector("[data-refresh]")) return;
  // After a submit, the key of a form must not change: a second click repeats the first.
  document.addEventListener("submit", (event) => {
    if (!event.defaultPrevented && event.target.method === "post") stopped = true;
  });
  document.addEventListener("visibilitychange", schedule);
  if (source === "poll") {
    state("Live");
    poll();
    return;
  }
  // Charts and workers change without events, too.
  const every = document.querySelector("[data-refresh-every]")?.dataset.refreshEvery;
  if (every) setInterval(schedule, every * 1000);
  const events = new EventSource(source);
  events.onopen = () => state("Live");
  events.onerror = () => {
    state("Offline");
    // The browser does not reconnect after 204, nor after an error of a proxy.
    if (events.readyState === EventSource.CLOSED) poll();
  };
  events.addEventListener("revoked", () => location.reload());
  for (const name of NAMES) events.addEventListener(name, schedule);
  addEventListener("pagehide", () => events.close());
  addEventListener("pageshow", (event) => event.persisted && location.reload());
}
