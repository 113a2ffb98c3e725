// Keeps the page live: fetches the part that changes and puts it in place. Without it, a reload does the same.
"use strict";

const EVERY_MS = 5000;
const live = document.querySelector("[data-live]");
const stale = document.getElementById("stale");

async function refresh() {
  const address = new URL(location.href);
  address.searchParams.set("fragment", "true");
  address.hash = "";
  const answer = await fetch(address, { signal: AbortSignal.timeout(2 * EVERY_MS) });
  if (!answer.ok) throw new Error(answer.statusText);
  put(await answer.text());
}

// What the reader has opened stays open, and the focus stays where it is.
function put(html) {
  const open = [...live.querySelectorAll("details[open]")].map((details) => details.id);
  const path = pathTo(document.activeElement);
  const scrolled = [...live.querySelectorAll(".scroll")].map((region) => region.scrollLeft);
  live.innerHTML = html;
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  live.querySelectorAll(".scroll").forEach((region, i) => (region.scrollLeft = scrolled[i] ?? 0));
  path?.reduce((parent, index) => parent?.children[index], live)?.focus({ preventScroll: true });
}

function pathTo(element) {
  if (!live.contains(element) || element === live) return null;
  const path = [];
  for (let at = element; at !== live; at = at.parentElement) path.unshift([...at.parentElement.children].indexOf(at));
  return path;
}

async function tick() {
  if (document.hidden || String(getSelection())) return;
  try {
    await refresh();
    stale.hidden = true;
    document.body.classList.remove("is-stale");
  } catch {
    stale.hidden = false; // what is shown is old, and must not look as if it were not
    document.body.classList.add("is-stale");
  }
}

(async () => {
  for (;;) {
    await new Promise((done) => setTimeout(done, EVERY_MS));
    await tick();
  }
})();
