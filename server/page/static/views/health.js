// Health: the providers, the server's version and limits.

import { get } from "../api.js";
import { html } from "../html.js";
import { useLoad } from "../session.js";
import { Facts, Failed, Head, Table } from "../widgets.js";

export function Health() {
  const { data, error, reload } = useLoad((signal) => Promise.all([get("v1/providers", signal), get("v1/version", signal), get("v1/limits", signal)]), []);
  if (!data) return html`<${Head} title="Health" /><${Failed} error=${error} />`;
  const [providers, version, limits] = data;
  return html`<${Head} title="Health"><button type="button" onClick=${reload}>Check again</button><//>
    <${Table} label="Providers"><thead><tr><th scope="col">Provider</th><th scope="col">Type</th><th scope="col">Kind</th><th scope="col">State</th></tr></thead>
      <tbody id="providers">${providers.data.map((/** @type {any} */ one) => html`<tr key=${`${one.kind} ${one.provider_id}`}><th scope="row">${one.provider_id}</th><td>${one.provider_type}</td><td>${one.kind}</td><td class="wraps"><span class=${one.health.status === "OK" ? "better" : "worse"}>${one.health.status}</span> ${one.health.message}</td></tr>`)}</tbody><//>
    ${providers.broken.length > 0 && html`<h2>Broken</h2><${Facts} of=${providers.broken.map((/** @type {any} */ one) => [one.name, one.reason])} />`}
    <h2>Server</h2><${Facts} of=${Object.entries(version)} />
    <details><summary>Limits of a request</summary><${Facts} of=${Object.entries(limits.server)} /></details>
    <details><summary>Limits of a document</summary><${Facts} of=${Object.entries(limits.document)} /></details>
    <${Configuration} providers=${providers.data} />`;
}

/** The settings in force, with secrets masked by the server; empty for anyone but the operator. @param {{ providers: any[] }} props */
function Configuration({ providers }) {
  const known = providers.filter((one) => Object.keys(one.config).length > 0);
  if (known.length === 0) return null;
  return html`<details><summary>Configuration in effect, secrets masked</summary>${known.map((one) => html`<h3>${one.kind}: ${one.provider_id}</h3><${Facts} of=${Object.entries(one.config)} />`)}</details>`;
}
