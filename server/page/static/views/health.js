// Health: the providers, live figures, the server's version, limits and configuration.

import { get } from "../api.js";
import { Charts } from "../charts.js";
import { html, useState } from "../html.js";
import { refusal, useLoad, useSession } from "../session.js";
import { Facts, Failed, Head, NotAllowed, Table } from "../widgets.js";

export function Health() {
  const { data, error, reload } = useLoad((signal) => Promise.all([get("v1/providers", signal), get("v1/version", signal), get("v1/limits", signal)]), []);
  if (!data) return html`<${Head} title="Health" /><${Failed} error=${error} />`;
  const [providers, version, limits] = data;
  return html`<${Head} title="Health"><button type="button" onClick=${reload}>Check again</button><//>
    <${Table} label="Providers" css="stacks"><thead><tr><th scope="col">Provider</th><th scope="col">Type</th><th scope="col">Kind</th><th scope="col">State</th></tr></thead>
      <tbody id="providers">${providers.data.map((/** @type {any} */ one) => html`<tr key=${`${one.kind} ${one.provider_id}`}><th scope="row">${one.provider_id}</th><td data-label="Type">${one.provider_type}</td><td data-label="Kind">${one.kind}</td><td class="wraps" data-label="State"><span class=${one.health.status === "OK" ? "better" : "worse"}>${one.health.status}</span> ${one.health.message}</td></tr>`)}</tbody><//>
    ${providers.broken.length > 0 && html`<h2>Broken</h2><${Facts} of=${providers.broken.map((/** @type {any} */ one) => [one.name, one.reason])} />`}
    <${Figures} />
    <h2>Server</h2><${Facts} of=${Object.entries(version)} />
    <details><summary>Limits of a request</summary><${Facts} of=${Object.entries(limits.server)} /></details>
    <details><summary>Limits of a document</summary><${Facts} of=${Object.entries(limits.document)} /></details>
    <${Configuration} />`;
}

/** What run.yaml and the defaults come to, with secrets masked by the server; for the operator. */
function Configuration() {
  const { who } = useSession();
  const why = refusal(who, "admin", true);
  const [open, set] = useState(false);
  return html`<details open=${open} onToggle=${(/** @type {any} */ event) => event.target === event.currentTarget && set(event.target.open)}><summary>Configuration in effect, secrets masked</summary>
    ${why ? html`<${NotAllowed} why=${why} />` : open && html`<${Settings} />`}</details>`;
}

function Settings() {
  const { data, error } = useLoad((signal) => get("v1/config", signal), []);
  if (!data) return html`<${Failed} error=${error} />`;
  return html`<pre id="config" tabindex="0" role="group" aria-label="Configuration">${JSON.stringify(data, null, 2)}</pre>`;
}

function Figures() {
  const { who } = useSession();
  const why = refusal(who, "reader", true);
  return html`<h2>Figures</h2>${why ? html`<${NotAllowed} why=${why} />` : html`<${Charts} />`}`;
}
