// Suggested questions: made from stored chunks, and judged once a person takes them over.

import { post } from "../api.js";
import { html, useState } from "../html.js";
import { counted } from "../names.js";
import { useSession } from "../session.js";
import { Act } from "../widgets.js";
import { judge, RIGHT } from "./judging.js";

const COUNT = 10;

/** @param {{ db: any, name: string, why: string, changed: () => void }} props */
export function Suggestions({ db, name, why, changed }) {
  const { say } = useSession();
  const [found, show] = useState(/** @type {any} */ (null));
  const suggest = async () => show(await post("v1/judgments/suggest", { vector_db_id: db.identifier, name, count: COUNT }));
  const drop = (/** @type {any[]} */ rows) => show((/** @type {any} */ now) => ({ ...now, data: now.data.filter((/** @type {any} */ one) => !rows.includes(one)) }));
  const take = async (/** @type {any[]} */ rows) => {
    for (const row of rows) await judge(db.identifier, name, row.question, { [row.chunk_id]: RIGHT }, true);
    say(`${counted(rows.length, "question")} added.`);
    drop(rows);
    changed();
  };
  const rows = found?.data ?? [];
  return html`<section class="card" aria-labelledby="suggest-title"><h2 id="suggest-title">Suggested questions</h2>
    <p class="quiet">Each is made from a stored chunk, which is then marked as right. They help to begin, and favor keyword search: questions of your users are worth more.</p>
    <p class="actions"><${Act} act=${suggest}>Suggest questions<//>${rows.length > 1 && html`<${Act} why=${why} act=${() => take(rows)}>Add all<//>`}</p>
    ${found && html`<p class="quiet" id="suggested-by">${rows.length === 0 ? "Nothing to suggest: no chunk has enough text, or all are judged." : found.model ? html`Written by <bdi>${found.model}</bdi>.` : "Made from headings and first sentences: this server has no language model that writes."}</p>`}
    <ul id="suggestions" class="plain">${rows.map((/** @type {any} */ row) => html`<li key=${row.chunk_id} class="source"><strong dir="auto">${row.question}</strong><p class="quote" dir="auto">${row.content}</p>
      <p class="actions"><${Act} why=${why} act=${() => take([row])} aria-label=${`Add: ${row.question}`}>Add<//><button type="button" aria-label=${`Drop: ${row.question}`} onClick=${() => drop([row])}>Drop</button></p></li>`)}</ul></section>`;
}
