// The context: the text that a language model reads, within its budget.

import { post } from "../api.js";
import { html } from "../html.js";
import { address, Link } from "../router.js";
import { numeric, ragRequest } from "../searching.js";
import { useLoad } from "../session.js";
import { Failed } from "../widgets.js";

/** @param {{ query: URLSearchParams, db: any, isAnswer?: boolean }} props */
export function Context({ query, db, isAnswer }) {
  const { query_config: config, ...rest } = ragRequest(query, db);
  const body = { ...rest, query_config: { ...config, citations: true } };
  const { data, error } = useLoad((signal) => post("v1/tool-runtime/rag-tool/query", body, signal), []);
  if (error) return html`<${Failed} error=${error} />`;
  if (!data) return html`<p class="quiet" role="status">Searching</p>`;
  const { token_count: spent = 0, max_tokens: most = numeric(query, "tokens"), dropped_by_reason: reasons = {}, dropped_chunks: dropped = [], citations = [], confidence } = data.metadata;
  const items = Array.isArray(data.content) ? data.content : [];
  const text = items.map((/** @type {any} */ item) => item.text).join("");
  return html`<section class="card" aria-labelledby="context-title"><h2 id="context-title">Context</h2>
    ${isAnswer && html`<p class="quiet">This server has no language model. Below is what one would read; set <code>inline::extractive</code> in run.yaml to have the best sentences quoted.</p>`}
    ${confidence !== undefined && confidence !== null && html`<p class="quiet">Confidence that something here answers the question: ${confidence.toFixed(2)}</p>`}
    <label class="budget">Budget <meter min="0" max=${most} value=${spent}></meter> ${spent} of ${most} tokens</label>
    ${citations.length > 0 && html`<ol id="sources">${citations.map((/** @type {any} */ one) => html`<li class="source"><${Link} to=${address(["dbs", one.vector_db_id, "documents", one.document_id ?? ""], { chunk: ends(one.chunk_ids) })}><bdi>${one.title ?? one.document_id ?? one.chunk_ids[0]}</bdi><//></li>`)}</ol>`}
    <ul class="plain quiet">${Object.entries(reasons).map(([reason, count]) => html`<li>${cut(reason, Number(count), dropped)}</li>`)}</ul>
    <pre id="context" tabindex="0" dir="auto" role="group" aria-label="The context as the model sees it">${text || "(empty: nothing relevant was found)"}</pre></section>`;
}

/** @param {string[]} ids of a passage */
const ends = (ids) => [...new Set([ids[0], ids.at(-1) ?? ids[0]])];

/** Why chunks were cut, and from which documents. @param {string} reason @param {number} count @param {any[]} chunks */
function cut(reason, count, chunks) {
  const names = new Set(chunks.filter((one) => one.reason === reason).map((one) => one.document_id ?? one.chunk_id));
  const few = [...names].slice(0, 5).join(", ");
  return `Cut, ${reason}: ${count} chunk${count === 1 ? "" : "s"} of ${few}${names.size > 5 ? ", ..." : ""}`;
}
