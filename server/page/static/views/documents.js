// The documents of a vector DB, from any source, and the files that are being ingested.

import { dbPath, get, post, storePath, upload } from "../api.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { counted, sizeOf } from "../names.js";
import { address, go, Link } from "../router.js";
import { refusal, told, useLoad, useSession } from "../session.js";
import { Act, Failed, Field, Head, NotAllowed, Table } from "../widgets.js";
import { adviceOn, Rows } from "./document_rows.js";

const EVERY_MS = 700;
const PAGE_SIZE = 25;
const MOST_JOBS = 10;

/** @param {{ db: any, query: URLSearchParams }} props */
export function Documents({ db, query }) {
  const { who } = useSession();
  const id = db.identifier;
  const [q, sort, order] = [query.get("q") ?? "", query.get("sort") ?? "name", query.get("order") ?? "asc"];
  const page = Math.max(1, Math.floor(Number(query.get("page"))) || 1);
  const why = refusal(who, "writer");
  const first = (page - 1) * PAGE_SIZE;
  const asked = String(new URLSearchParams({ details: "true", limit: String(PAGE_SIZE), offset: String(first), sort, order, q }));
  const { data, error, loading, reload } = useLoad((signal) => get(`${dbPath(id)}/documents?${asked}`, signal), [id, asked]);
  const place = (/** @type {Record<string, string | number>} */ changes) => {
    const now = { q, sort, order, page, ...changes };
    return address(["dbs", id, "documents"], { q: now.q, sort: now.sort === "name" ? "" : now.sort, order: now.order === "asc" ? "" : now.order, page: now.page === 1 ? "" : now.page });
  };
  const sortedBy = (/** @type {string} */ column, /** @type {boolean} */ down) => place({ sort: column, order: down ? "desc" : "asc", page: 1 });
  return html`<${Head} title=${html`Documents <bdi class="of">${id}</bdi>`} /><p class="lead" id="total">${data && counted(data.total, "document")}${data && q && html` named like <q dir="auto">${q}</q>`}</p>
    <${NotAllowed} why=${why && `Documents can be read here. ${why}`} />
    ${!why && html`<${Upload} id=${id} />`}
    <${Unfinished} id=${id} why=${why} ended=${reload} />
    <div><${Find} key=${q} q=${q} find=${(/** @type {string} */ text) => go(place({ q: text, page: 1 }))} /></div>
    <${Failed} error=${error} />
    <div aria-busy=${loading}>${data && data.data.length > 0 && html`<${Rows} db=${db} data=${data.data} sort=${sort} isDown=${order === "desc"} sortedBy=${sortedBy} why=${why} done=${reload} showsAcl=${!why} />`}
    ${data && data.data.length === 0 && html`<${Nothing} total=${data.total} q=${q} back=${place({ page: 1 })} />`}</div>
    ${data && (page > 1 || data.has_more) && html`<p class="actions" id="paging"><button type="button" disabled=${page === 1} onClick=${() => go(place({ page: page - 1 }))}>Previous</button><button type="button" disabled=${!data.has_more} onClick=${() => go(place({ page: page + 1 }))}>Next</button>
      ${data.data.length > 0 && html`<span>Documents ${first + 1} to ${first + data.data.length} of ${data.total.toLocaleString()}</span>`}</p>`}`;
}

/** @param {{ q: string, find: (text: string) => void }} props */
function Find({ q, find }) {
  const submit = (/** @type {any} */ event) => {
    event.preventDefault();
    find(event.target.elements.part.value.trim());
  };
  return html`<form id="find" role="search" class="actions find" onSubmit=${submit}><label class="field"><span>Find by name</span><input name="part" type="search" maxlength="255" value=${q} /></label><button>Find</button>${q && html`<button type="button" onClick=${() => find("")}>Show all</button>`}</form>`;
}

/** @param {{ total: number, q: string, back: string }} props */
function Nothing({ total, q, back }) {
  if (total > 0) return html`<p>There are no more documents. <${Link} to=${back}>First page<//></p>`;
  return html`<p id="no-documents">${q ? "No document has this in its name." : "No documents yet. Chunks without a document are not listed."}</p>`;
}

/** @param {{ id: string }} props */
function Upload({ id }) {
  const { say } = useSession();
  const [files, set] = useState(/** @type {{ name: string, share: number, failed: string }[]} */ ([]));
  const [over, drag] = useState(false);
  const [readers, read] = useState("");
  const send = async (/** @type {File[]} */ chosen) => {
    const rows = chosen.map((file) => ({ name: file.name, share: 0, failed: "" }));
    const acl = readers.split(/\s+/).filter(Boolean);
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
        await post(`${storePath(id)}/files`, { file_id: stored.id, acl: acl.length ? acl : null });
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
    <details class="bare"><summary>Who may read them${readers.trim() && `: ${readers.trim()}`}</summary><${Field} label="Tokens, with spaces between" note="Such as group:sales. Empty: as the vector DB's default_acl says."><input id="readers" value=${readers} onInput=${(/** @type {any} */ event) => read(event.target.value)} /><//></details>
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
  return html`<${Table} label="Ingestion" css="stacks"><caption>In progress or failed${data.has_more ? html`: the newest ${MOST_JOBS}, <${Link} to=${address(["jobs"], { db: id })}>see all<//>` : ""}</caption>
    <thead><tr><th scope="col">Document</th><th scope="col">State</th><th scope="col">Progress</th></tr></thead>
    <tbody id="jobs">${data.data.map((/** @type {any} */ job) => html`<${Job} key=${job.job_id} job=${job} why=${why} done=${reload} />`)}</tbody><//>`;
}

/** A row of a job. @param {{ job: any, why: string, done: () => void, showsDB?: boolean }} props */
export function Job({ job, why, done, showsDB }) {
  const name = job.filename || job.document_id;
  const path = `v1/jobs/${encodeURIComponent(job.job_id)}`;
  const isOpen = job.status === "queued" || job.status === "running";
  const canRetry = job.status === "failed" || job.status === "cancelled";
  return html`<tr><th scope="row" class="wraps"><bdi>${name}</bdi></th>${showsDB && html`<td class="wraps" data-label="Vector DB"><bdi>${job.vector_db_id}</bdi></td>`}<td class=${job.status} data-label="State">${job.status}</td>
    <td class="wraps long" data-label="Progress">${isOpen && html`<${Progress} job=${job} name=${name} />`}${job.error_message && html`<span dir="auto">${job.error_message}</span> ${job.status === "failed" && html`<span class="quiet">${adviceOn(job)}</span>`}`}
      ${job.status === "completed" && counted(job.progress.chunks, "chunk")}
      ${isOpen && html` <${Act} why=${why} act=${() => post(`${path}/cancel`).then(done)} aria-label=${`Cancel ${name}`}>Cancel<//>`}
      ${canRetry && html` <${Act} why=${why} act=${() => post(`${path}/retry`).then(done)} aria-label=${`Retry ${name}`}>Retry<//>`}</td></tr>`;
}

/** @param {{ job: any, name: string }} props */
function Progress({ job, name }) {
  const { characters, characters_total: total, rate, seconds_left: left } = job.progress;
  return html`<progress max=${total || 1} value=${characters} aria-label=${`Progress of ${name}`}></progress> <span class="quiet">${rate ? `${Math.round(rate)} chunks/s` : ""}${left ? `, ${Math.ceil(left)} s left` : ""} ${sizeOf(job.usage_bytes || null)}</span>`;
}
