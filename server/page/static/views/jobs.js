// Jobs: the ingestion jobs of all vector DBs, with buttons to cancel and retry them.

import { get } from "../api.js";
import { html, useEffect } from "../html.js";
import { address, go } from "../router.js";
import { refusal, useLoad, useSession } from "../session.js";
import { Failed, Field, Head, NotAllowed, Table } from "../widgets.js";
import { Job } from "./documents.js";

const PAGE_SIZE = 25;
const EVERY_MS = 2000;
const STATES = ["queued", "running", "failed", "cancelled", "completed"];

/** @param {{ query: URLSearchParams }} props */
export function Jobs({ query }) {
  const { dbs, who } = useSession();
  const why = refusal(who, "writer");
  const [status, db, after] = ["status", "db", "after"].map((name) => query.get(name) ?? "");
  const asked = new URLSearchParams({ limit: String(PAGE_SIZE) });
  for (const [name, value] of [["status", status], ["vector_db_id", db], ["after", after]]) if (value) asked.set(name, value);
  const { data, error, reload } = useLoad((signal) => get(`v1/jobs?${asked}`, signal), [String(asked)]);
  const isMoving = data?.data.some((/** @type {any} */ job) => job.status === "queued" || job.status === "running");
  useEffect(() => {
    if (!isMoving) return undefined;
    const later = setTimeout(reload, EVERY_MS);
    return () => clearTimeout(later);
  }, [data]);
  const choose = (/** @type {Record<string, string>} */ changes) => go(address(["jobs"], { status, db, ...changes }));
  return html`<${Head} title="Jobs" lead="Each document that goes in is a job. A failed one says why, and if a retry can help." />
    <${NotAllowed} why=${why} />
    <div class="options"><${Field} label="State"><select id="state" value=${status} onChange=${(/** @type {any} */ event) => choose({ status: event.target.value })}><option value="">all</option>${STATES.map((one) => html`<option value=${one}>${one}</option>`)}</select><//>
      <${Field} label="Vector DB"><select value=${db} onChange=${(/** @type {any} */ event) => choose({ db: event.target.value })}><option value="">all</option>${dbs.slice(0, 200).map((one) => html`<option value=${one.identifier}>${one.identifier}</option>`)}</select><//></div>
    <${Failed} error=${error} />
    ${data?.data.length === 0 && html`<p>No jobs.</p>`}
    ${data?.data.length > 0 && html`<${Table} label="Jobs" css="stacks"><thead><tr><th scope="col">Document</th><th scope="col">Vector DB</th><th scope="col">State</th><th scope="col">Progress</th></tr></thead><tbody id="all-jobs">${data.data.map((/** @type {any} */ job) => html`<${Job} key=${job.job_id} job=${job} why=${why} done=${reload} showsDB />`)}</tbody><//>`}
    <p class="actions">${after && html`<button type="button" onClick=${() => choose({})}>Newest</button>`}${data?.has_more && html`<button type="button" onClick=${() => choose({ after: data.last_id })}>Older</button>`}</p>`;
}
