// The console: a side bar, and the view that the address names.

import { hasKey, useKey } from "./api.js";
import { html, render, useCallback, useEffect, useRef, useState } from "./html.js";
import { address, go, Link, usePlace } from "./router.js";
import { load, Shared, told } from "./session.js";
import { SideBar, VIEWS } from "./sidebar.js";
import { Ask } from "./views/ask.js";
import { Databases } from "./views/databases.js";
import { Documents } from "./views/documents.js";
import { Evaluate } from "./views/evaluate.js";
import { Health } from "./views/health.js";
import { Jobs } from "./views/jobs.js";
import { Keys } from "./views/keys.js";
import { Reports } from "./views/reports.js";
import { Settings } from "./views/settings.js";
import { Source } from "./views/source.js";
import { Head } from "./widgets.js";

const ICON = new URL("icon.svg", import.meta.url).href;
/** @type {Record<string, any>} */
const OF_A_DB = { ask: Ask, documents: Documents, settings: Settings, evaluate: Evaluate };
/** @type {Record<string, any>} */
const OF_THE_SERVER = { jobs: Jobs, keys: Keys, reports: Reports, health: Health };

function Console() {
  const place = usePlace();
  const [loaded, set] = useState(/** @type {any} */ (null));
  const [error, fail] = useState(/** @type {any} */ (null));
  const [message, tell] = useState({ text: "", failed: false });
  const [open, toggle] = useState(false);
  const refresh = useCallback(async () => {
    try {
      set(await load());
      fail(null);
    } catch (problem) {
      fail(problem);
      set(null);
    }
  }, []);
  const say = useCallback((/** @type {string} */ text, failed = false) => tell({ text, failed }), []);
  useEffect(() => void refresh(), []);
  useArrival(place, toggle, tell);
  const { text, failed } = message;
  const body = loaded ? html`<${View} ...${place} dbs=${loaded.dbs} />` : error ? html`<${KeyForm} error=${error} refresh=${refresh} />` : html`<p class="quiet" aria-live="polite">Loading</p>`;
  return html`<${Shared.Provider} value=${{ ...loaded, refresh, say }}>
    <a class="skip" href="${location.pathname}${location.search}#main" onClick=${skip}>Skip to the content</a>
    <header><${Link} class="brand" to=${address([])}><img src=${ICON} alt="" width="24" height="24" />Corral<//>
      ${loaded && html`<button type="button" class="menu" aria-expanded=${open} aria-controls="side" onClick=${() => toggle(!open)}>Menu</button>`}
      ${loaded && hasKey() && html`<button type="button" onClick=${() => leave(refresh)}>Forget the key</button>`}</header>
    <div class=${open ? "frame open" : "frame"}>
      <div id="side">${loaded && html`<${SideBar} parts=${place.parts} />`}</div>
      <main id="main" tabindex="-1"><p id="message" class=${failed ? "notice bad" : "notice"} role="status" aria-live="polite" hidden=${!text}>${text}</p>${body}</main>
    </div><//>`;
}

/** @param {Event} event */
function skip(event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

/** @param {() => void} refresh */
function leave(refresh) {
  useKey("");
  refresh();
}

/**
 * When the view changes, close the menu, clear the message and show the view in the title.
 * @param {import("./router.js").Place} place
 * @param {(open: boolean) => void} toggle
 * @param {(message: { text: string, failed: boolean }) => void} tell
 */
function useArrival(place, toggle, tell) {
  const before = useRef("");
  const name = place.parts.join("/");
  useEffect(() => {
    document.title = ["Corral", ...place.parts.filter((part) => part !== "dbs")].join(" - ");
    if (before.current && before.current !== name) {
      toggle(false);
      tell({ text: "", failed: false });
      document.getElementById("main")?.focus({ preventScroll: true });
    }
    before.current = name;
  }, [name]);
}

/** @param {{ parts: string[], query: URLSearchParams, dbs: any[] }} props */
function View({ parts, query, dbs }) {
  const [kind, id, name, ...rest] = parts;
  const db = dbs.find((one) => one.identifier === id);
  const isHome = parts.length === 0;
  useEffect(() => {
    if (isHome) go(dbs.length ? address(["dbs", dbs[0].identifier, "ask"]) : address(["dbs"]), true);
    else if (db && !name) go(address(["dbs", id, "ask"]), true);
  }, [isHome, db, name]);
  if (isHome || (db && !name)) return null;
  if (kind === "dbs" && !id) return html`<${Databases} />`;
  if (kind === "dbs" && !db) return html`<${Missing} what=${`There is no vector DB ${id}, or you may not read it.`} />`;
  if (kind === "dbs" && name === "documents" && rest.length) return html`<${Source} key=${id} db=${db} documentId=${rest.join("/")} query=${query} />`;
  const Shown = kind === "dbs" ? OF_A_DB[name] : OF_THE_SERVER[kind];
  if (!Shown) return html`<${Missing} what="There is no such page." />`;
  return html`${db && html`<${ViewsOf} id=${id} current=${name} />`}<${Shown} key=${id ?? kind} db=${db} query=${query} />`;
}

/** The views of a vector DB, where the side bar is closed. @param {{ id: string, current: string }} props */
const ViewsOf = ({ id, current }) => html`<nav class="tabs narrow" aria-label=${`Views of ${id}`}>${VIEWS.map(([name, label]) => html`<${Link} to=${address(["dbs", id, name])} aria-current=${name === current ? "page" : undefined}>${label}<//>`)}</nav>`;

/** @param {{ what: string }} props */
const Missing = ({ what }) => html`<${Head} title="Not found" /><p>${what}</p><p><${Link} to=${address(["dbs"])}>All vector DBs<//></p>`;

/** @param {{ error: any, refresh: () => Promise<void> }} props */
function KeyForm({ error, refresh }) {
  const [refused, refuse] = useState("");
  if (error.status !== 401) return html`<p class="notice bad" role="alert">${told(error)}</p><button type="button" onClick=${refresh}>Try again</button>`;
  const submit = (/** @type {any} */ event) => {
    event.preventDefault();
    const fields = event.target.elements;
    try {
      useKey(fields.key.value.trim(), fields.stays.checked);
      refuse("");
      refresh();
    } catch (problem) {
      refuse(told(problem));
    }
  };
  return html`<${Head} title="This server needs an API key" />
    ${(refused || hasKey()) && html`<p class="notice bad" role="alert">${refused || told(error)}</p>`}
    <form id="key-form" class="card" onSubmit=${submit}>
      <label class="field"><span>API key</span><input name="key" type="password" autocomplete="off" required /></label>
      <label class="check"><input name="stays" type="checkbox" /> Keep it until this tab closes</label>
      <button class="primary">Use the key</button>
      <p class="quiet">The key stays in this page's memory, and a reload forgets it unless you tick the box. If you have none, ask who runs this server: <code>corral keys create NAME</code> creates one.</p>
    </form>`;
}

const app = document.getElementById("app");
if (app) {
  app.replaceChildren();
  render(html`<${Console} />`, app);
}
