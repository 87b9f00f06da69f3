// Many at a time: tick all rows of a table, and repeat a form of batches until it is gone.
import { morph } from "./live.js";

document.addEventListener("change", (event) => {
  const form = event.target.dataset.tickAll;
  if (!form) return;
  for (const box of document.querySelectorAll(`input[type="checkbox"][form="${form}"]`)) {
    box.checked = event.target.checked;
  }
});

// The response to a batch is the page of the next one. A lost response is repeated with the same
// form key, so each batch is done once.
async function repeat() {
  for (let form; (form = document.querySelector("[data-continue] form")); ) {
    const body = new URLSearchParams(new FormData(form));
    const response = await fetch(form.action, { method: "POST", body, headers: { Accept: "text/html" } });
    if (!response.ok) break; // the button continues, and shows the error
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const fresh = page.getElementById("progress");
    if (!fresh) break;
    morph(document.getElementById("progress"), document.adoptNode(fresh));
  }
}

repeat().catch(() => {}); // offline: the button continues
