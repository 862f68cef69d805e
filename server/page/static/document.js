// The page of a document on a server that needs a key: asks for one, then shows the page.

import { get, useKey } from "./api.js";
import { find, say } from "./elements.js";

// Parsed documents run no scripts, and the policy of this page holds for what is put into it.
async function show(address) {
  try {
    const page = new DOMParser().parseFromString(await get(address), "text/html");
    document.title = page.title;
    document.querySelector("main").replaceWith(page.querySelector("main"));
    (find("passage") ?? document.documentElement).scrollIntoView();
  } catch (error) {
    say(error.message, true);
  }
}

find("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  try {
    useKey(find("key").value.trim());
  } catch (error) {
    say(error.message, true);
    return;
  }
  show(`document${location.search}`);
});

// Links to other parts of the document need the key as well.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("main a[href^='document?']");
  if (!link) return;
  event.preventDefault();
  show(link.getAttribute("href"));
});
