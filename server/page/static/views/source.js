// A document: its text with the cited chunks marked, and its chunks as a list.

import { dbPath, get, remove, send } from "../api.js";
import { html, useEffect } from "../html.js";
import { counted, nameOf, wayTo } from "../names.js";
import { address, go, Link } from "../router.js";
import { refusal, useLoad, useSession } from "../session.js";
import { Code, Failed, Head, Sure } from "../widgets.js";
import { About } from "./about.js";
import { Markdown } from "./markdown.js";
import { hasPages, Pages } from "./pages.js";

const AROUND = 50;
const TABLE = /^\|? *:?-{3,}:? *\|/m; // readers write the tables of all formats so
const MOST_ON_A_PAGE = 100;

/** @param {{ db: any, documentId: string, query: URLSearchParams }} props */
export function Source({ db, documentId, query }) {
  const { who } = useSession();
  const cited = query.getAll("chunk");
  const given = query.get("offset");
  const path = documentId ? `${dbPath(db.identifier)}/documents/${encodeURIComponent(documentId)}` : "";
  const asked = [path, given, ...cited].join("|");
  const { data, error, reload } = useLoad((signal) => (path ? part(path, cited, given, signal) : alone(db.identifier, cited, signal)), [asked]);
  useEffect(() => {
    if (data) document.getElementById("passage")?.scrollIntoView({ block: "center" });
  }, [data]);
  if (error) return html`<${Head} title="Document" /><${Failed} error=${error} />`;
  if (!data) return html`<p class="quiet" role="status">Loading</p>`;
  const { chunks, total, offset } = data;
  const missing = cited.length > 0 && given === null && !chunks.some((/** @type {any} */ chunk) => cited.includes(chunk.chunk_id));
  const why = refusal(who, "writer");
  const erase = () => remove(path).then(() => go(address(["dbs", db.identifier, "documents"])));
  const view = query.get("view") ?? (hasPages(chunks[0]) ? "pages" : "text");
  const turn = (/** @type {Record<string, any>} */ changes) => address(["dbs", db.identifier, "documents", documentId], { chunk: cited, view: query.get("view"), offset: given, ...changes });
  return html`<${Head} title=${nameOf(chunks[0])}>${path && html`<${Sure} why=${why} sure="Delete it?" act=${erase}>Delete<//>`}<//>
    <p><${Link} to=${address(["dbs", db.identifier, "documents"])}>Documents of <bdi>${db.identifier}</bdi><//> <span class="quiet">${counted(total, "chunk")}</span></p>
    ${missing && html`<p class="notice">The cited passage is no longer in this document, which may have changed.</p>`}
    <nav class="tabs" aria-label="Ways to see the document">${[["text", "Text"], ...(hasPages(chunks[0]) ? [["pages", "Pages"]] : []), ["chunks", "Chunks"], ["about", "About"]].map(([name, label]) => html`<${Link} to=${turn({ view: name })} aria-current=${view === name ? "page" : undefined}>${label}<//>`)}</nav>
    ${view === "about" ? html`<${About} path=${path} chunk=${chunks[0]} metadata=${data.metadata} why=${why} done=${reload} />` : view === "pages" ? html`<${Pages} db=${db.identifier} documentId=${documentId} chunks=${chunks} cited=${cited} query=${query} turn=${turn} text=${html`<${Text} chunks=${chunks} cited=${cited} />`} />` : html`<${Text} chunks=${chunks} colors=${data.colors} codeBlocks=${data.codeBlocks} cited=${cited} isList=${view === "chunks"} />`}
    ${view !== "about" && view !== "pages" && total > chunks.length && html`<p class="actions">${offset > 0 && html`<${Link} to=${turn({ offset: Math.max(0, offset - MOST_ON_A_PAGE) })}>Earlier<//>`}${offset + chunks.length < total && html`<${Link} to=${turn({ offset: offset + chunks.length })}>Later<//>`}<span class="quiet">Chunks ${offset + 1} to ${offset + chunks.length} of ${total}</span></p>`}`;
}

/**
 * A part of a document, near the cited chunks if no offset is given.
 * @param {string} path
 * @param {string[]} cited
 * @param {string | null} given
 * @param {AbortSignal} signal
 */
async function part(path, cited, given, signal) {
  let offset = Number(given ?? 0);
  let data = await get(`${path}?colors=true&limit=${MOST_ON_A_PAGE}&offset=${offset}`, signal);
  const has = () => data.chunks.some((/** @type {any} */ chunk) => cited.includes(chunk.chunk_id));
  while (given === null && cited.length > 0 && !has() && offset + data.chunks.length < data.chunk_count) {
    offset += AROUND;
    data = await get(`${path}?colors=true&limit=${MOST_ON_A_PAGE}&offset=${offset}`, signal);
  }
  return { chunks: data.chunks, metadata: data.metadata, colors: data.colors, codeBlocks: data.code_blocks, total: data.chunk_count, offset };
}

/** Chunks that belong to no document. @param {string} db @param {string[]} ids @param {AbortSignal} signal */
async function alone(db, ids, signal) {
  const { data: chunks } = await send("POST", "v1/vector-io/get", { vector_db_id: db, chunk_ids: ids }, signal);
  if (chunks.length === 0) throw new Error("There is no such chunk, or you may not read it.");
  return { chunks, metadata: chunks[0].metadata, total: chunks.length, offset: 0 };
}

/** @param {{ chunks: any[], colors?: [string, string][][], codeBlocks?: [string, string][][][], cited: string[], isList?: boolean }} props */
function Text({ chunks, colors, codeBlocks, cited, isList }) {
  const first = chunks.find((chunk) => cited.includes(chunk.chunk_id))?.chunk_id;
  return html`<div class=${isList ? "chunks" : "document"}>${chunks.map((chunk, at) => html`<section key=${chunk.chunk_id} id=${chunk.chunk_id === first ? "passage" : undefined} class=${cited.includes(chunk.chunk_id) ? "chunk cited" : "chunk"} aria-label=${cited.includes(chunk.chunk_id) ? "Cited passage" : undefined}>
    ${isList && html`<p class="quiet"><code>${chunk.chunk_id}</code> ${wayTo(chunk)}</p>`}
    ${colors?.[at] ? html`<${Code} pieces=${colors[at]} />` : isMarkdown(chunk) && !isList ? html`<${Markdown} text=${chunk.content} codeBlocks=${codeBlocks?.[at]} />` : html`<div class="plain-text" dir="auto">${chunk.content}</div>`}</section>`)}</div>`;
}

/** @param {any} chunk */
const isMarkdown = (chunk) => TABLE.test(chunk.content) || /\.(md|markdown)$/i.test(chunk.metadata.filename ?? chunk.chunk_metadata?.filename ?? chunk.chunk_metadata?.source ?? "") || chunk.metadata.mime_type === "text/markdown";
