// The pages of a PDF as pictures, with the areas of the cited chunks marked.

import { get, picture } from "../api.js";
import { html } from "../html.js";
import { Link } from "../router.js";
import { told, useLoad } from "../session.js";

const WIDTH = 1200;

/** Whether a document may have pages to show: the server knows more. @param {any} chunk */
export const hasPages = (chunk) => Boolean(chunk.chunk_metadata?.page && chunk.metadata.file_id && !chunk.metadata.part_of);

/**
 * @param {{ db: string, documentId: string, chunks: any[], cited: string[], query: URLSearchParams, turn: (changes: Record<string, any>) => string, text: unknown }} props
 */
export function Pages({ db, documentId, chunks, cited, query, turn, text }) {
  const marked = chunks.filter((chunk) => cited.includes(chunk.chunk_id));
  const page = Number(query.get("page")) || marked[0]?.chunk_metadata?.page || 1;
  const onPage = marked.filter((chunk) => isOn(chunk, page)).map((chunk) => chunk.chunk_id);
  const place = new URLSearchParams({ vector_db_id: db, document_id: documentId, page: String(page) });
  const { data, error, loading } = useLoad((signal) => shown(place, onPage, signal), [String(place), ...onPage]);
  if (error) return html`<p class="notice" id="no-pages">${told(error)} Here is its text.</p>${text}`;
  if (!data) return html`<p class="quiet" role="status">Loading the page</p>`;
  const { areas, page_count: count } = data.found;
  return html`<p class="actions" id="pages">${data.found.page > 1 && html`<${Link} to=${turn({ page: page - 1 })}>Page before<//>`}${data.found.page < count && html`<${Link} to=${turn({ page: page + 1 })}>Next page<//>`}<span>Page ${data.found.page} of ${count}</span></p>
    ${onPage.length > 0 && areas.length === 0 && html`<p class="notice" id="unmarked">The cited passage could not be located on this page, so nothing is marked. Its text is under Text.</p>`}
    <figure class="page" aria-busy=${loading}><img src=${data.source} alt=${`Page ${data.found.page}`} />
      <svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">${areas.map((/** @type {any} */ area) => html`<rect x=${area.left} y=${area.top} width=${area.width} height=${area.height} />`)}</svg></figure>`;
}

/** @param {any} chunk @param {number} page */
function isOn(chunk, page) {
  const { page: first, page_end: last } = chunk.chunk_metadata ?? {};
  return first <= page && page <= (last ?? first);
}

/** @param {URLSearchParams} place @param {string[]} chunkIds @param {AbortSignal} signal */
async function shown(place, chunkIds, signal) {
  const asked = new URLSearchParams(place);
  for (const id of chunkIds) asked.append("chunk_id", id);
  const [found, source] = await Promise.all([get(`v1/pages/areas?${asked}`, signal), picture(`v1/pages/picture?${place}&width=${WIDTH}`, signal)]);
  return { found, source };
}
