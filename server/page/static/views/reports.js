// Reports of the benchmark in the data folder.

import { get, hasKey } from "../api.js";
import { html } from "../html.js";
import { refusal, useLoad, useSession } from "../session.js";
import { Act, download, Failed, Head, NotAllowed } from "../widgets.js";

export function Reports() {
  const { who } = useSession();
  const why = refusal(who, "reader", true);
  return html`<${Head} title="Reports" lead="What corral bench has measured, by folder of reports in the data folder." />
    ${why ? html`<${NotAllowed} why=${why} />` : html`<${List} />`}`;
}

function List() {
  const { data, error } = useLoad((signal) => get("reports", signal), []);
  if (error) return html`<${Failed} error=${error} />`;
  if (data?.data.length === 0) return html`<p>None yet: <code>corral bench quality --out ~/.corral/reports/NAME</code> writes one.</p>`;
  return html`<ul id="reports">${data?.data.map((/** @type {any} */ report) => html`<li><${ReportLink} report=${report} /> <span class="quiet">${report.created}</span></li>`)}</ul>`;
}

/** A browser sends no key with a link, so with a key, reports are downloaded instead. @param {{ report: any }} props */
function ReportLink({ report }) {
  const path = `reports/${encodeURIComponent(report.name)}`;
  if (!hasKey()) return html`<a href=${path} target="_blank" rel="noopener">${report.name}</a>`;
  const save = async () => download(`${report.name}.html`, new Blob([await get(path)], { type: "text/html" }));
  return html`<${Act} act=${save}>${report.name} (download)<//>`;
}
