// The answer as it arrives, with numbers that link to the sources beside it.

import { stream } from "../api.js";
import { html, useEffect, useState } from "../html.js";
import { placeOf } from "../names.js";
import { address, Link } from "../router.js";
import { answerRequest } from "../searching.js";
import { Failed } from "../widgets.js";

const NOTHING = { text: "", refusal: "", citations: [], hits: [], confidence: null, state: "searching", error: null };

/** @param {{ query: URLSearchParams, db: any, model: string }} props */
export function Answer({ query, db, model }) {
  const [answer, set] = useState(/** @type {any} */ (NOTHING));
  useEffect(() => {
    const abort = new AbortController();
    written(answerRequest(query, db, model), abort.signal, (next) => abort.signal.aborted || set(next)).catch((error) => {
      if (!abort.signal.aborted) set((/** @type {any} */ before) => ({ ...before, state: "failed", error }));
    });
    return () => abort.abort();
  }, []);
  const { text, refusal, citations, hits, state, confidence, error } = answer;
  const sources = numbered(citations);
  const others = hits.filter((/** @type {any} */ hit) => !sources.has(hit.chunk_id));
  return html`<div class="answered" aria-busy=${state === "searching" || state === "writing"}>
    <section aria-labelledby="answer-title"><h2 id="answer-title">Answer</h2>
      ${state === "searching" && html`<p class="quiet" role="status">Searching</p>`}
      <p id="answer" dir="auto">${cited(text || refusal, citations, sources)}</p>
      ${state === "done" && !text && !refusal && html`<p class="quiet">The answer is empty.</p>`}
      <${Failed} error=${error} />
      ${confidence !== null && html`<p class="quiet">Confidence that something here answers the question: ${confidence.toFixed(2)}</p>`}
      <p class="announcement" role="status">${state === "done" ? "The answer is complete." : ""}</p></section>
    <section aria-labelledby="sources-title"><h2 id="sources-title">Sources</h2>
      ${state === "done" && sources.size === 0 && html`<p class="quiet">The answer cites no source.</p>`}
      <ol id="sources">${[...sources.values()].map((one) => html`<${Card} key=${one.chunk_id} of=${one} number=${one.number} text=${one.quotes.join("\n")} />`)}</ol>
      ${others.length > 0 && html`<details><summary>${others.length} more found</summary><ul class="plain">${others.map((/** @type {any} */ one) => html`<${Card} key=${one.chunk_id} of=${one} text=${one.text} />`)}</ul></details>`}
    </section></div>`;
}

/**
 * Send the question, and call `show` with the answer so far whenever more of it arrives.
 * @param {unknown} body
 * @param {AbortSignal} signal
 * @param {(answer: any) => void} show
 */
async function written(body, signal, show) {
  let answer = NOTHING;
  const add = (/** @type {Record<string, any>} */ more) => show(answer = { ...answer, ...more });
  for await (const event of stream("v1/responses", body, signal)) {
    switch (event.type) {
      case "response.output_text.delta": add({ text: answer.text + event.delta, state: "writing" }); break;
      case "response.refusal.delta": add({ refusal: answer.refusal + event.delta, state: "writing" }); break;
      case "response.output_text.annotation.added": add({ citations: [...answer.citations, event.annotation] }); break;
      case "response.output_item.done": if (event.item.results) add({ hits: [...answer.hits, ...event.item.results] }); break;
      case "response.failed": add({ state: "failed", error: new Error(event.response.error.message) }); break;
      case "response.completed":
      case "response.incomplete": add({ state: "done", confidence: event.response.corral?.confidence ?? null }); break;
      default:
    }
  }
}

/** The cited chunks, numbered in the order of the answer. @param {any[]} citations @returns {Map<string, any>} */
function numbered(citations) {
  const sources = new Map();
  for (const one of citations) {
    const before = sources.get(one.chunk_id) ?? { ...one, number: sources.size + 1, quotes: [] };
    if (!before.quotes.includes(one.quote)) before.quotes.push(one.quote);
    sources.set(one.chunk_id, before);
  }
  return sources;
}

/**
 * The text with a number at each citation. Indexes count code points, but JavaScript strings are UTF-16.
 * @param {string} text
 * @param {any[]} citations
 * @param {Map<string, any>} sources
 */
function cited(text, citations, sources) {
  const points = [...text];
  const parts = [];
  let end = 0;
  for (const { index, chunk_id: chunk } of citations) {
    const one = sources.get(chunk);
    parts.push(points.slice(end, index).join(""), html`<sup><${Link} to=${sourceOf(one)} aria-label=${`Source ${one.number}: ${one.filename}`}>[${one.number}]<//></sup>`);
    end = index;
  }
  parts.push(points.slice(end).join(""));
  return parts;
}

/** The address of a source. @param {any} one a citation or a hit */
export const sourceOf = (one) => address(["dbs", one.vector_store_id, "documents", one.document_id ?? one.attributes?.document_id ?? (one.file_id === one.chunk_id ? "" : one.file_id) ?? ""], { chunk: one.chunk_id });

/** @param {{ of: any, number?: number, text: string }} props */
function Card({ of, number, text }) {
  const score = of.score === undefined ? "" : `score ${of.score.toFixed(3)}`;
  return html`<li class="source">${number && html`<span class="number" aria-hidden="true">${number}</span>`}<${Link} to=${sourceOf(of)}><bdi>${of.filename}</bdi><//>
    <span class="quiet"> ${[placeOf(of), score].filter(Boolean).join(", ")}</span><p class="quote" dir="auto">${text}</p></li>`;
}
