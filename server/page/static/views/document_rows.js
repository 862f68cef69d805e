// The table of documents: one row each, with what can be done to it.

import { dbPath, get, post, remove, storePath, upload } from "../api.js";
import { html, useRef, useState } from "../html.js";
import { sizeOf, timeOf } from "../names.js";
import { address, Link } from "../router.js";
import { told, useSession } from "../session.js";
import { Act, Sure, Table } from "../widgets.js";

const POLL_MS = 500;
const MOST_ATTRIBUTES = 3;
const LONGEST_VALUE = 40;
/** What the server lets a file have: as many attributes, and of these types. */
const FILE_ATTRIBUTES = 16;
const COLUMNS = [["name", "Document", ""], ["size", "Size", "n"], ["chunks", "Chunks", "n"], ["updated", "Changed", ""]];

/**
 * @param {{ db: any, data: any[], sort: string, isDown: boolean, sortedBy: (column: string, down: boolean) => string, why: string, done: () => void, showsAcl: boolean }} props
 */
export function Rows({ db, data, sort, isDown, sortedBy, why, done, showsAcl }) {
  const heading = (/** @type {string[]} */ [column, label, css]) => {
    const is = sort === column;
    return html`<th scope="col" class=${css} aria-sort=${is ? (isDown ? "descending" : "ascending") : undefined}><${Link} to=${sortedBy(column, is && !isDown)}>${label}<span aria-hidden="true">${is ? (isDown ? " ↓" : " ↑") : ""}</span><//></th>`;
  };
  return html`<${Table} label="Stored documents" css="stacks"><thead><tr>${COLUMNS.map(heading)}<th scope="col">Attributes</th>${showsAcl && html`<th scope="col">Readers</th>`}<th scope="col">State</th><th scope="col"><span class="announcement">Actions</span></th></tr></thead>
    <tbody id="documents">${data.map((one) => html`<${Row} key=${one.document_id} db=${db} one=${one} why=${why} done=${done} showsAcl=${showsAcl} />`)}</tbody><//>`;
}

/** @param {{ db: any, one: any, why: string, done: () => void, showsAcl: boolean }} props */
function Row({ db, one, why, done, showsAcl }) {
  const id = db.identifier;
  const name = one.name ?? one.document_id;
  const state = one.job?.status ?? "stored";
  const attributes = shortly(one.attributes ?? {});
  const erase = () => remove(documentPath(id, one)).then(done);
  return html`<tr><th scope="row" class="wraps"><${Link} to=${address(["dbs", id, "documents", one.document_id])}><bdi>${name}</bdi><//></th>
    <td class="n" data-label="Size">${sizeOf(one.size_bytes)}</td><td class="n" data-label="Chunks">${one.chunk_count}</td><td data-label="Changed">${one.updated_at ? timeOf(one.updated_at) : "-"}</td>
    <td class=${attributes ? "wraps" : "none"} data-label="Attributes"><bdi>${attributes || "-"}</bdi></td>
    ${showsAcl && html`<td class="wraps" data-label="Readers"><bdi>${one.acl ? one.acl.join(" ") || "admins only" : "default"}</bdi></td>`}
    <td class=${one.job?.error_message ? "wraps long" : "wraps"} data-label="State"><span class=${state}>${state === "completed" ? "stored" : state}</span>${one.job?.error_message && html` <span dir="auto">${one.job.error_message}</span> ${state === "failed" && html`<span class="quiet">${adviceOn(one.job)} The stored text is the one before.</span>`}`}</td>
    <td class="n"><span class="row-actions">${state === "failed" && html`<${Act} why=${why} act=${() => post(`v1/jobs/${encodeURIComponent(one.job.job_id)}/retry`).then(started)} aria-label=${`Retry ${name}`}>Retry<//>`}
      <${Act} why=${why || refusedAgain(one)} act=${() => ingestAgain(id, one)} aria-label=${`Re-ingest ${name}`}>Re-ingest<//>
      <${Replace} id=${id} one=${one} name=${name} why=${why || refusedOther(one)} done=${done} />
      <${Sure} why=${why} sure="Delete it?" act=${erase}>Delete<//></span></td></tr>`;
}

/** @param {string} id @param {any} one */
const documentPath = (id, one) => `${dbPath(id)}/documents/${encodeURIComponent(one.document_id)}`;

/** Whether a retry can help. @param {any} job */
export const adviceOn = (job) => (job.error_code === "server_error" ? "A retry can help." : "A retry reads the same file: replace it first.");

/** The views of jobs look again. */
function started() {
  dispatchEvent(new Event("corral:uploaded"));
}

/** The first attributes, shortened. @param {Record<string, unknown>} attributes */
function shortly(attributes) {
  const pairs = Object.entries(attributes).filter(([name]) => name !== "title");
  const shown = pairs.slice(0, MOST_ATTRIBUTES).map(([name, value]) => {
    const text = typeof value === "string" ? value : JSON.stringify(value);
    return `${name}: ${text.length > LONGEST_VALUE ? `${text.slice(0, LONGEST_VALUE)}…` : text}`;
  });
  const more = pairs.length - shown.length;
  return [...shown, more > 0 ? `${more} more` : ""].filter(Boolean).join(", ");
}

/** Why no other file may take the place of a document. @param {any} one */
function refusedOther(one) {
  if (one.attributes?.part_of) return "It is a part of another document: replace that one.";
  const kept = Object.entries(attributesOf(one));
  const odd = kept.find(([, value]) => !["string", "number", "boolean"].includes(typeof value));
  if (odd || kept.length > FILE_ATTRIBUTES) return `A file has at most ${FILE_ATTRIBUTES} attributes, each a text, a number or a boolean: this document has others.`;
  return "";
}

/** Why a document cannot be read again from its file. @param {any} one */
const refusedAgain = (one) => (one.file_id === one.document_id ? refusedOther(one) : "There is no file of it to read again: its text came with a request.");

/** @param {any} one */
const attributesOf = (one) => Object.fromEntries(Object.entries(one.attributes ?? {}).filter(([name]) => name !== "title"));

/** What a new version of a document has of the one before. @param {any} one */
const inherited = (one) => ({ attributes: attributesOf(one), acl: one.acl ?? null });

/** @param {string} id @param {any} one */
async function ingestAgain(id, one) {
  await post(`${storePath(id)}/files`, { file_id: one.file_id, ...inherited(one) });
  started();
}

/**
 * A button that asks for a file, adds it, and deletes the old document once the new one is stored.
 * @param {{ id: string, one: any, name: string, why: string, done: () => void }} props
 */
function Replace({ id, one, name, why, done }) {
  const { say } = useSession();
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  const [share, set] = useState(/** @type {number | null} */ (null));
  const chosen = async (/** @type {any} */ event) => {
    const [file] = event.target.files;
    event.target.value = "";
    set(0);
    try {
      await replace(id, one, file, set);
      say(`${name} is replaced by ${file.name}.`);
    } catch (error) {
      say(told(error), true);
    }
    set(null);
    done();
    started();
  };
  return html`<${Act} why=${why} act=${() => input.current?.click()} aria-label=${`Replace ${name}`}>Replace<//><input ref=${input} type="file" hidden data-replaces=${one.document_id} onChange=${chosen} />${share !== null && html`<progress max="1" value=${share} aria-label=${`Upload in place of ${name}`}></progress>`}`;
}

/** @param {string} id @param {any} one @param {File} file @param {(share: number) => void} progress */
async function replace(id, one, file, progress) {
  const form = new FormData();
  form.set("purpose", "assistants");
  form.set("file", file, file.name);
  const stored = await upload("v1/files", form, progress);
  const path = `${storePath(id)}/files`;
  let attached = await post(path, { file_id: stored.id, ...inherited(one) });
  while (attached.status === "in_progress") {
    await new Promise((later) => setTimeout(later, POLL_MS));
    attached = await get(`${path}/${encodeURIComponent(stored.id)}`);
  }
  if (attached.status !== "completed") throw new Error(`${attached.last_error?.message ?? "The new file could not be read."} The old document stays.`);
  await remove(documentPath(id, one));
}
