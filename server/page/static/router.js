// Addresses: what the page shows is in its URL, so that it can be reloaded and shared.

import { html, useEffect, useState } from "./html.js";

const root = new URL(document.baseURI).pathname;
/** @type {Set<() => void>} */
const listeners = new Set();

/**
 * @typedef {{ parts: string[], query: URLSearchParams }} Place
 */

/** The current place. @returns {Place} */
export function here() {
  const path = location.pathname.slice(root.length).replace(/^ui\/?/, "");
  return { parts: path ? path.split("/").map(decoded) : [], query: new URLSearchParams(location.search) };
}

/** @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/**
 * The address of a place, from the root of the server.
 * @param {string[]} parts
 * @param {Record<string, string | string[] | number | null | undefined> | URLSearchParams} [query]
 */
export function address(parts, query = {}) {
  const pairs = query instanceof URLSearchParams ? [...query] : Object.entries(query).flatMap(([name, value]) => [value ?? []].flat().map((one) => [name, String(one)]));
  const search = new URLSearchParams(pairs.filter(([, value]) => value !== "")).toString();
  return `${root}ui/${parts.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

/**
 * Go to an address; with `replace` it replaces the current one in the history.
 * @param {string} to
 * @param {boolean} [replace]
 */
export function go(to, replace = false) {
  if (to === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  for (const each of listeners) each();
}

addEventListener("popstate", () => {
  for (const each of listeners) each();
});

/** The current place, as a state. */
export function usePlace() {
  const [place, set] = useState(here());
  useEffect(() => {
    const changed = () => set(here());
    listeners.add(changed);
    return () => listeners.delete(changed);
  }, []);
  return place;
}

/**
 * A link within the console.
 * @param {{ to: string, children?: unknown, [name: string]: unknown }} props
 */
export function Link({ to, children, ...others }) {
  const click = (/** @type {MouseEvent} */ event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(to);
    scrollTo(0, 0);
  };
  return html`<a href=${to} onClick=${click} ...${others}>${children}</a>`;
}
