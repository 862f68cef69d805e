// The page of a document on a server that needs a key: asks for one, then shows the page.

import { get, useKey } from "./api.js";

const find = (/** @type {string} */ id) => document.getElementById(id);
const form = /** @type {HTMLFormElement} */ (find("key-form"));

/** @param {unknown} error */
function tell(error) {
  const message = find("message");
  if (message) message.textContent = error instanceof Error ? error.message : String(error);
}

// A parsed document runs no scripts, and the security policy of this page applies to its content.
/** @param {string} address */
async function show(address) {
  try {
    const page = new DOMParser().parseFromString(await get(address), "text/html");
    const main = page.querySelector("main");
    document.title = page.title;
    if (main) document.querySelector("main")?.replaceWith(main);
    (find("passage") ?? document.documentElement).scrollIntoView();
  } catch (error) {
    tell(error);
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  try {
    useKey(/** @type {HTMLInputElement} */ (find("key")).value.trim());
  } catch (error) {
    tell(error);
    return;
  }
  show(`document${location.search}`);
});

// Links to other parts of the document need the key as well.
document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("main a[href^='document?']") : null;
  if (!link) return;
  event.preventDefault();
  show(link.getAttribute("href") ?? "");
});
