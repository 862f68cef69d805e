// Evaluate: the judged questions of a vector DB, more of them from its chunks, and tuning with them.

import { get, post } from "../api.js";
import { html, useState } from "../html.js";
import { counted } from "../names.js";
import { address, go, Link } from "../router.js";
import { refusal, useLoad, useSession } from "../session.js";
import { Act, download, Failed, Field, Head, NotAllowed, Sure, Table } from "../widgets.js";
import { judge, setOf } from "./judging.js";
import { Suggestions } from "./suggesting.js";
import { Tunings } from "./tuning.js";

const PAGE_SIZE = 10;
const MOST_EXPORTED = 100;
const LEAST = 10;

/** @param {{ db: any, query: URLSearchParams }} props */
export function Evaluate({ db, query }) {
  const { who } = useSession();
  const id = db.identifier;
  const name = setOf(query);
  const after = query.get("after") ?? "0";
  const sets = useLoad((signal) => get(`v1/judgments?${new URLSearchParams({ vector_db_id: id })}`, signal), [id]);
  const names = (sets.data?.data ?? []).map((/** @type {any} */ one) => one.name);
  const { data, error, reload } = useLoad((signal) => get(`${pathOf(id, name)}&after=${after}&limit=${PAGE_SIZE}`, signal), [id, name, after]);
  const rows = data?.data ?? [];
  const [why, whyAdmin] = [refusal(who, "writer"), refusal(who, "admin")];
  const place = (/** @type {Record<string, any>} */ more) => address(["dbs", id, "evaluate"], { set: name === "main" ? "" : name, ...more });
  const changed = () => {
    sets.reload();
    reload();
  };
  const forget = async () => {
    await post("v1/judgments/delete", { vector_db_id: id, name });
    go(place({ set: "" }));
    changed();
  };
  const total = data?.total ?? null;
  return html`<${Head} title=${html`Evaluate <bdi class="of">${id}</bdi>`} lead="Ask, open the reasons, and mark hits as right or wrong. With twenty judged questions Corral can tune the settings on your data." />
    <${NotAllowed} why=${why} />
    <section class="card" aria-labelledby="questions-title"><h2 id="questions-title">Judged questions</h2>
      <${Sets} db=${db} names=${names} name=${name} why=${why} changed=${sets.reload} />
      <${Failed} error=${sets.error ?? error} />
      <p id="judged">${counted(total ?? rows.length, "judged question")}${total === null && data?.has_more ? " on this page" : ""}${(total ?? rows.length) < LEAST && !data?.has_more ? `; tuning needs ${LEAST}` : ""}.</p>
      ${rows.length > 0 && html`<${Table} label=${`Questions of ${name}`}><thead><tr><th scope="col">Question</th><th scope="col" class="n">Right</th><th scope="col" class="n">Wrong</th><th scope="col"><span class="announcement">Actions</span></th></tr></thead>
        <tbody id="questions">${rows.map((/** @type {any} */ row) => html`<${Row} key=${row.key} db=${db} name=${name} row=${row} why=${why} changed=${reload} />`)}</tbody><//>`}
      <p class="actions">${after !== "0" && html`<${Link} to=${place({})}>First<//>`}${data?.has_more && html`<${Link} to=${place({ after: data.last })}>Next<//>`}</p>
      ${rows.length > 0 && html`<p class="actions"><${Act} act=${() => saveFiles(id, name)}>Export as BEIR<//><${Act} act=${() => saveQuestions(id, name)}>Download questions.jsonl<//>
        <${Sure} sure=${`Delete ${name}?`} why=${whyAdmin} act=${forget}>Delete the set<//></p>`}
    </section>
    <${Suggestions} key=${name} db=${db} name=${name} why=${why} changed=${changed} />
    <${Tunings} key=${`tunings ${name}`} db=${db} name=${name} why=${why} whyAdmin=${whyAdmin} />
    <${Command} db=${db} />`;
}

/** @param {string} id @param {string} name */
const pathOf = (id, name) => `v1/judgments/questions?${new URLSearchParams({ vector_db_id: id, name })}`;

/** @param {{ db: any, names: string[], name: string, why: string, changed: () => void }} props */
function Sets({ db, names, name, why, changed }) {
  const { say } = useSession();
  const listed = names.includes(name) ? names : [name, ...names];
  const choose = (/** @type {string} */ set) => go(address(["dbs", db.identifier, "evaluate"], { set: set === "main" ? "" : set }));
  const create = async (/** @type {any} */ event) => {
    event.preventDefault();
    const made = String(new FormData(event.target).get("set")).trim();
    try {
      await post("v1/judgments", { vector_db_id: db.identifier, name: made });
      event.target.reset();
      changed();
      choose(made);
    } catch (/** @type {any} */ problem) {
      say(problem.message, true);
    }
  };
  return html`<div class="options"><${Field} label="Set"><select id="set" value=${name} onChange=${(/** @type {any} */ event) => choose(event.target.value)}>${listed.map((one) => html`<option value=${one}>${one}</option>`)}</select><//>
    <form id="new-set" class="actions" onSubmit=${create}><${Field} label="Another set"><input name="set" required maxlength="100" disabled=${Boolean(why)} /><//> <button disabled=${Boolean(why)} title=${why || undefined}>Create</button></form></div>`;
}

/** @param {{ db: any, name: string, row: any, why: string, changed: () => void }} props */
function Row({ db, name, row, why, changed }) {
  const grades = Object.values(row.grades);
  const right = grades.filter((grade) => Number(grade) > 0).length;
  const takeBack = async () => {
    await judge(db.identifier, name, row.question, Object.fromEntries(Object.keys(row.grades).map((chunk) => [chunk, null])));
    changed();
  };
  return html`<tr><th scope="row" class="wraps" dir="auto"><${Link} to=${address(["dbs", db.identifier, "ask"], { q: row.question, set: name === "main" ? "" : name, show: "why" })}>${row.question}<//> ${row.suggested && html`<span class="quiet">suggested</span>`}</th>
    <td class="n">${right}</td><td class="n">${grades.length - right}</td><td class="n"><${Sure} why=${why} sure="Take its judgments back?" act=${takeBack}>Remove<//></td></tr>`;
}

/** @param {string} id @param {string} name */
async function saveFiles(id, name) {
  download(`${name}.zip`, await get(`v1/judgments/export?${new URLSearchParams({ vector_db_id: id, name })}`));
}

/** The questions as `corral bench tune --queries` reads them. @param {string} id @param {string} name */
async function saveQuestions(id, name) {
  const lines = [];
  let page = { data: /** @type {any[]} */ ([]), has_more: true, last: 0 };
  while (page.has_more) {
    page = await get(`${pathOf(id, name)}&after=${page.last}&limit=${MOST_EXPORTED}`);
    for (const { key, question, grades } of page.data) {
      const relevant = Object.fromEntries(Object.entries(grades).filter(([, grade]) => Number(grade) > 0));
      if (Object.keys(relevant).length > 0) lines.push(`${JSON.stringify({ _id: key, query: question, relevant })}\n`);
    }
  }
  download("questions.jsonl", new Blob(lines, { type: "application/x-ndjson" }));
}

/** @param {{ db: any }} props */
function Command({ db }) {
  const [open, set] = useState(false);
  return html`<details open=${open} onToggle=${(/** @type {any} */ event) => set(event.target.open)}><summary>Tune on the command line, with a report of its own</summary>${open && html`<${CommandOf} db=${db} />`}</details>`;
}

/** @param {{ db: any }} props */
function CommandOf({ db }) {
  const { data } = useLoad((signal) => get("v1/providers", signal), []);
  const provider = data?.data.find((/** @type {any} */ one) => one.provider_id === db.provider_id);
  return provider ? html`<pre id="tune" tabindex="0" role="group" aria-label="How to tune">${command(db.identifier, provider)}</pre>` : null;
}

/** How to tune a vector DB. The command opens its files, beside this server. @param {string} id @param {any} provider */
function command(id, { provider_type: type, capabilities }) {
  if (capabilities?.persistent === false) return `# ${type} keeps nothing that a command could tune. Ingest into another provider, such as inline::sqlite.`;
  const words = `corral bench tune --db '${id.replaceAll("'", "'\\''")}' --queries questions.jsonl`;
  return capabilities?.concurrent_processes === false ? `# ${type} serves one process at a time: stop this server first.\n${words}` : words;
}
