// A document: its text with the cited chunks marked, and its chunks as a list.

import { dbPath, get, remove, send } from "../api.js";
import { html, useEffect, useState } from "../html.js";
import { counted, nameOf, placeOf, wayTo } from "../names.js";
import { address, go, Link } from "../router.js";
import { refusal, useLoad, useSession } from "../session.js";
import { Act, Facts, Failed, Field, Head, NotAllowed, Sure } from "../widgets.js";
import { Markdown } from "./markdown.js";

const AROUND = 50;
const MOST_ON_A_PAGE = 100;
const SET_BY_SERVER = new Set(["document_id", "file_id", "filename", "title", "part_of", "parts"]);

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
  const view = query.get("view") ?? "text";
  const turn = (/** @type {Record<string, any>} */ changes) => address(["dbs", db.identifier, "documents", documentId], { chunk: cited, view: view === "text" ? "" : view, offset: given, ...changes });
  return html`<${Head} title=${nameOf(chunks[0])}>${path && html`<${Sure} why=${why} sure="Delete it?" act=${erase}>Delete<//>`}<//>
    <p><${Link} to=${address(["dbs", db.identifier, "documents"])}>Documents of <bdi>${db.identifier}</bdi><//> <span class="quiet">${counted(total, "chunk")}</span></p>
    ${missing && html`<p class="notice">The cited passage is no longer in this document, which may have changed.</p>`}
    <nav class="tabs" aria-label="Ways to see the document">${[["text", "Text"], ["chunks", "Chunks"], ["about", "About"]].map(([name, label]) => html`<${Link} to=${turn({ view: name === "text" ? "" : name })} aria-current=${view === name ? "page" : undefined}>${label}<//>`)}</nav>
    ${view === "about" ? html`<${About} path=${path} chunk=${chunks[0]} why=${why} done=${reload} />` : html`<${Text} chunks=${chunks} cited=${cited} isList=${view === "chunks"} />`}
    ${total > chunks.length && html`<p class="actions">${offset > 0 && html`<${Link} to=${turn({ offset: Math.max(0, offset - MOST_ON_A_PAGE) })}>Earlier<//>`}${offset + chunks.length < total && html`<${Link} to=${turn({ offset: offset + chunks.length })}>Later<//>`}<span class="quiet">Chunks ${offset + 1} to ${offset + chunks.length} of ${total}</span></p>`}`;
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
  let data = await get(`${path}?limit=${MOST_ON_A_PAGE}&offset=${offset}`, signal);
  const has = () => data.chunks.some((/** @type {any} */ chunk) => cited.includes(chunk.chunk_id));
  while (given === null && cited.length > 0 && !has() && offset + data.chunks.length < data.chunk_count) {
    offset += AROUND;
    data = await get(`${path}?limit=${MOST_ON_A_PAGE}&offset=${offset}`, signal);
  }
  return { chunks: data.chunks, total: data.chunk_count, offset };
}

/** Chunks that belong to no document. @param {string} db @param {string[]} ids @param {AbortSignal} signal */
async function alone(db, ids, signal) {
  const { data: chunks } = await send("POST", "v1/vector-io/get", { vector_db_id: db, chunk_ids: ids }, signal);
  if (chunks.length === 0) throw new Error("There is no such chunk, or you may not read it.");
  return { chunks, total: chunks.length, offset: 0 };
}

/** @param {{ chunks: any[], cited: string[], isList: boolean }} props */
function Text({ chunks, cited, isList }) {
  const first = chunks.find((chunk) => cited.includes(chunk.chunk_id))?.chunk_id;
  return html`<div class=${isList ? "chunks" : "document"}>${chunks.map((chunk) => html`<section key=${chunk.chunk_id} id=${chunk.chunk_id === first ? "passage" : undefined} class=${cited.includes(chunk.chunk_id) ? "chunk cited" : "chunk"} aria-label=${cited.includes(chunk.chunk_id) ? "Cited passage" : undefined}>
    ${isList && html`<p class="quiet"><code>${chunk.chunk_id}</code> ${wayTo(chunk)}</p>`}
    ${isMarkdown(chunk) && !isList ? html`<${Markdown} text=${chunk.content} />` : html`<div class="plain-text" dir="auto">${chunk.content}</div>`}</section>`)}</div>`;
}

/** @param {any} chunk */
const isMarkdown = (chunk) => /\.(md|markdown)$/i.test(chunk.metadata.filename ?? chunk.chunk_metadata?.filename ?? chunk.chunk_metadata?.source ?? "") || chunk.metadata.mime_type === "text/markdown";

/** @param {{ path: string, chunk: any, why: string, done: () => void }} props */
function About({ path, chunk, why, done }) {
  const { say } = useSession();
  const [acl, type] = useState((chunk.acl ?? []).join("\n"));
  const attributes = Object.entries(chunk.metadata).filter(([name]) => !SET_BY_SERVER.has(name));
  const permit = async () => {
    const tokens = acl.split(/\s+/).filter(Boolean);
    await send("PATCH", path, { acl: tokens.length ? tokens : null });
    say("The permissions are changed.");
    done();
  };
  return html`<h2>Attributes</h2><${Facts} of=${[["place of the first chunk", placeOf(chunk.chunk_metadata)], ...attributes]} />
    ${path && html`<section class="card"><h2>Who may read it</h2><${NotAllowed} why=${why} /><${Field} label="Tokens, one a line" note="Such as group:sales. Empty: as the vector DB's default_acl says."><textarea id="acl" rows="3" value=${acl} disabled=${Boolean(why)} onInput=${(/** @type {any} */ event) => type(event.target.value)}></textarea><//><p><${Act} why=${why} act=${permit}>Save the permissions<//></p></section>`}`;
}
