// The side bar: the vector DBs, the views of the current one, and the server's own.

import { html, useState } from "./html.js";
import { address, Link } from "./router.js";
import { useSession } from "./session.js";

const MOST_LISTED = 20;
export const VIEWS = [["ask", "Ask"], ["documents", "Documents"], ["settings", "Settings"], ["evaluate", "Evaluate"]];
const SERVER = [["jobs", "Jobs"], ["keys", "Keys"], ["reports", "Reports"], ["health", "Health"]];

/** @param {{ parts: string[] }} props */
export function SideBar({ parts }) {
  const { dbs, who } = useSession();
  const [sought, seek] = useState("");
  const [kind, current, view] = parts;
  const matching = dbs.filter((db) => db.identifier.toLowerCase().includes(sought.toLowerCase()));
  const listed = matching.slice(0, MOST_LISTED);
  const chosen = kind === "dbs" ? current : null;
  if (chosen && !listed.some((db) => db.identifier === chosen)) listed.unshift(...dbs.filter((db) => db.identifier === chosen));
  const is = (/** @type {boolean} */ so) => (so ? "page" : undefined);
  return html`<nav class="side" aria-label="Console">
    <h2>Vector DBs</h2>
    ${dbs.length > MOST_LISTED && html`<input type="search" aria-label="Find a vector DB" placeholder="Find" value=${sought} onInput=${(/** @type {any} */ event) => seek(event.target.value)} />`}
    <ul class="dbs">
      ${listed.map((db) => html`<li key=${db.identifier}><${Link} to=${address(["dbs", db.identifier, "ask"])} aria-current=${is(db.identifier === chosen && !view)}><bdi>${db.identifier}</bdi><//>
        ${db.identifier === chosen && html`<ul>${VIEWS.map(([name, label]) => html`<li><${Link} to=${address(["dbs", db.identifier, name])} aria-current=${is(view === name)}>${label}<//></li>`)}</ul>`}</li>`)}
      ${matching.length > listed.length && html`<li class="quiet">${matching.length - listed.length} more: find them by name</li>`}
      <li><${Link} to=${address(["dbs"])} aria-current=${is(kind === "dbs" && !current)}>${dbs.length ? "All and new" : "Register one"}<//></li>
    </ul>
    <h2>Server</h2>
    <ul>${SERVER.map(([name, label]) => html`<li><${Link} to=${address([name])} aria-current=${is(kind === name)}>${label}<//></li>`)}
      <li><a href="docs">HTTP reference</a></li></ul>
    <p class="quiet who">${who.user ? html`<bdi>${who.user}</bdi>, ` : ""}${who.role}${who.tenant ? html` of <bdi>${who.tenant}</bdi>` : ""}</p>
  </nav>`;
}
