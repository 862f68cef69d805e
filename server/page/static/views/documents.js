// The documents of a vector DB, from any source, and the files that are being ingested.

import { dbPath, get, post, remove, storePath, upload } from "../api.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { counted, sizeOf } from "../names.js";
import { address, go, Link } from "../router.js";
import { refusal, told, useLoad, useSession } from "../session.js";
import { Act, Failed, Head, NotAllowed, Sure, Table } from "../widgets.js";

const EVERY_MS = 700;
const PAGE_SIZE = 25;
const MOST_JOBS = 10;

/** @param {{ db: any, query: URLSearchParams }} props */
export function Documents({ db, query }) {
  const { who } = useSession();
  const id = db.identifier;
  const afters = query.getAll("after"); // where each page begins, up to this one
  const after = afters.at(-1) ?? "";
  const why = refusal(who, "writer");
  const { data, error, loading, reload } = useLoad((signal) => get(`${dbPath(id)}/documents?${new URLSearchParams({ names: "true", limit: String(PAGE_SIZE), after })}`, signal), [id, after]);
  const turn = (/** @type {string[]} */ to) => go(address(["dbs", id, "documents"], { after: to }));
  const first = afters.length * PAGE_SIZE;
  return html`<${Head} title="Documents" />
    <${NotAllowed} why=${why && `Documents can be read here. ${why}`} />
    ${!why && html`<${Upload} id=${id} />`}
    <${Unfinished} id=${id} why=${why} ended=${reload} />
    <${Failed} error=${error} />
    <div aria-busy=${loading}>${data && data.data.length > 0 && html`<${Table} label="Stored documents"><thead><tr><th scope="col">Document</th><th scope="col" class="n">Chunks</th><th scope="col"><span class="announcement">Actions</span></th></tr></thead>
      <tbody id="documents">${data.data.map((/** @type {any} */ one) => html`<tr key=${one.document_id}><th scope="row" class="wraps"><${Link} to=${address(["dbs", id, "documents", one.document_id])}><bdi>${one.name ?? one.document_id}</bdi><//></th><td class="n">${one.chunk_count}</td>
        <td class="n"><${Sure} why=${why} sure="Delete it?" act=${() => remove(`${dbPath(id)}/documents/${encodeURIComponent(one.document_id)}`).then(reload)}>Delete<//></td></tr>`)}</tbody><//>`}
    ${data && data.data.length === 0 && (afters.length ? html`<p>There are no more documents.</p>` : html`<p id="no-documents">No documents yet. Chunks without a document are not listed.</p>`)}</div>
    ${data && (afters.length > 0 || data.has_more) && html`<p class="actions" id="paging"><button type="button" disabled=${afters.length === 0} onClick=${() => turn(afters.slice(0, -1))}>Previous</button><button type="button" disabled=${!data.has_more} onClick=${() => turn([...afters, data.last_id])}>Next</button>
      <span>Documents ${first + 1} to ${first + data.data.length}</span></p>`}`;
}

/** @param {{ id: string }} props */
function Upload({ id }) {
  const { say } = useSession();
  const [files, set] = useState(/** @type {{ name: string, share: number, failed: string }[]} */ ([]));
  const [over, drag] = useState(false);
  const send = async (/** @type {File[]} */ chosen) => {
    const rows = chosen.map((file) => ({ name: file.name, share: 0, failed: "" }));
    const show = () => set(rows.filter((row) => row.share < 1 || row.failed).map((row) => ({ ...row })));
    show();
    for (const [at, file] of chosen.entries()) {
      const form = new FormData();
      form.set("purpose", "assistants");
      form.set("file", file, file.name);
      try {
        const stored = await upload("v1/files", form, (share) => {
          rows[at].share = Math.min(share, 0.99);
          show();
        });
        await post(`${storePath(id)}/files`, { file_id: stored.id });
        rows[at].share = 1;
      } catch (error) {
        rows[at].failed = told(error);
      }
      show();
      dispatchEvent(new Event("corral:uploaded"));
    }
    const failed = rows.filter((row) => row.failed).length;
    say(failed ? `${counted(failed, "file")} of ${rows.length} could not be added.` : `${counted(rows.length, "file")} added.`, failed > 0);
  };
  const drop = (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    drag(false);
    send([...event.dataTransfer?.files ?? []]);
  };
  const choose = async (/** @type {any} */ event) => {
    await send([...event.target.files]);
    event.target.value = "";
  };
  return html`<div id="drop" class=${over ? "over" : ""} onDragOver=${(/** @type {DragEvent} */ event) => (event.preventDefault(), drag(true))} onDragLeave=${() => drag(false)} onDrop=${drop}>
    <label for="files">Add files: drop them here, or choose <input id="files" type="file" multiple onChange=${choose} /></label>
    <ul class="plain">${files.map((file) => html`<li><bdi>${file.name}</bdi> ${file.failed ? html`<span class="failed">${file.failed}</span>` : html`<progress max="1" value=${file.share} aria-label=${`Upload of ${file.name}`}></progress>`}</li>`)}</ul></div>`;
}

/**
 * The unfinished jobs, polled until they are done.
 * @param {{ id: string, why: string, ended: () => void }} props
 */
function Unfinished({ id, why, ended }) {
  const open = new URLSearchParams({ limit: String(MOST_JOBS), vector_db_id: id });
  for (const status of ["queued", "running", "failed"]) open.append("status", status);
  const { data, reload } = useLoad((signal) => get(`v1/jobs?${open}`, signal), [id]);
  const working = useRef(/** @type {Set<string>} */ (new Set()));
  useEffect(() => {
    addEventListener("corral:uploaded", reload);
    return () => removeEventListener("corral:uploaded", reload);
  }, []);
  useEffect(() => {
    if (!data) return undefined;
    const now = new Set(data.data.filter((/** @type {any} */ job) => job.status !== "failed").map((/** @type {any} */ job) => job.job_id));
    if ([...working.current].some((job) => !now.has(job))) ended();
    working.current = now;
    if (now.size === 0) return undefined;
    const later = setTimeout(reload, EVERY_MS);
    return () => clearTimeout(later);
  }, [data]);
  useEffect(() => {
    const uploaded = () => ended();
    addEventListener("corral:uploaded", uploaded);
    return () => removeEventListener("corral:uploaded", uploaded);
  }, [ended]);
  if (!data?.data.length) return null;
  return html`<${Table} label="Ingestion"><caption>In progress or failed${data.has_more ? html`: the newest ${MOST_JOBS}, <${Link} to=${address(["jobs"], { db: id })}>see all<//>` : ""}</caption>
    <thead><tr><th scope="col">Document</th><th scope="col">Status</th><th scope="col">Progress</th></tr></thead>
    <tbody id="jobs">${data.data.map((/** @type {any} */ job) => html`<${Job} key=${job.job_id} job=${job} why=${why} done=${reload} />`)}</tbody><//>`;
}

/** A row of a job. @param {{ job: any, why: string, done: () => void, showsDB?: boolean }} props */
export function Job({ job, why, done, showsDB }) {
  const name = job.filename || job.document_id;
  const path = `v1/jobs/${encodeURIComponent(job.job_id)}`;
  const isOpen = job.status === "queued" || job.status === "running";
  const canRetry = job.status === "failed" || job.status === "cancelled";
  return html`<tr><th scope="row" class="wraps"><bdi>${name}</bdi></th>${showsDB && html`<td class="wraps"><bdi>${job.vector_db_id}</bdi></td>`}<td class=${job.status}>${job.status}</td>
    <td class="wraps">${isOpen && html`<${Progress} job=${job} name=${name} />`}${job.error_message && html`<span dir="auto">${job.error_message}</span> ${job.status === "failed" && html`<span class="quiet">${adviceOn(job)}</span>`}`}
      ${job.status === "completed" && counted(job.progress.chunks, "chunk")}
      ${isOpen && html` <${Act} why=${why} act=${() => post(`${path}/cancel`).then(done)} aria-label=${`Cancel ${name}`}>Cancel<//>`}
      ${canRetry && html` <${Act} why=${why} act=${() => post(`${path}/retry`).then(done)} aria-label=${`Retry ${name}`}>Retry<//>`}</td></tr>`;
}

/** Whether a retry can help. @param {any} job */
const adviceOn = (job) => (job.error_code === "server_error" ? "A retry can help." : "A retry reads the same file: replace it first.");

/** @param {{ job: any, name: string }} props */
function Progress({ job, name }) {
  const { characters, characters_total: total, rate, seconds_left: left } = job.progress;
  return html`<progress max=${total || 1} value=${characters} aria-label=${`Progress of ${name}`}></progress> <span class="quiet">${rate ? `${Math.round(rate)} chunks/s` : ""}${left ? `, ${Math.ceil(left)} s left` : ""} ${sizeOf(job.usage_bytes || null)}</span>`;
}
