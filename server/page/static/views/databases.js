// All vector DBs, and the form that registers another.

import { dbPath, get, post } from "../api.js";
import { html, useState } from "../html.js";
import { sizeOf } from "../names.js";
import { address, go, Link } from "../router.js";
import { refusal, useLoad, useSession } from "../session.js";
import { Field, Head, NotAllowed, Table } from "../widgets.js";

const PAGE_SIZE = 50;

export function Databases() {
  const { dbs, who } = useSession();
  const [shown, show] = useState(PAGE_SIZE);
  const [measured, measure] = useState(false);
  return html`<${Head} title="Vector DBs">${dbs.length > 0 && html`<button type="button" aria-pressed=${measured} onClick=${() => measure(!measured)}>Sizes</button>`}<//>
    ${dbs.length > 0 && html`<${Table} label="Vector DBs" css="stacks"><thead><tr><th scope="col">Id</th><th scope="col">Provider</th><th scope="col">Embedding model</th><th scope="col">Mode</th>${measured && html`<th scope="col" class="n">Chunks</th><th scope="col" class="n">Documents</th><th scope="col" class="n">Disk</th>`}</tr></thead>
      <tbody>${dbs.slice(0, shown).map((db) => html`<tr key=${db.identifier}><th scope="row" class="wraps"><${Link} to=${address(["dbs", db.identifier, "ask"])}><bdi>${db.identifier}</bdi><//></th><td data-label="Provider">${db.provider_id}</td><td class="wraps" data-label="Embedding model">${db.embedding_model}</td><td data-label="Mode"><span class="badge mode-${db.search_mode}">${db.search_mode}</span></td>${measured && html`<${Sizes} id=${db.identifier} />`}</tr>`)}</tbody><//>`}
    ${dbs.length > shown && html`<p><button type="button" onClick=${() => show(shown + PAGE_SIZE)}>Show more</button></p>`}
    <${Register} why=${refusal(who, "writer")} />`;
}

/** The sizes of a vector DB; a backend that does not answer has none. @param {{ id: string }} props */
function Sizes({ id }) {
  const { data, loading } = useLoad((signal) => get(`${dbPath(id)}?counts=true`, signal), [id]);
  const shown = (/** @type {number | undefined} */ count) => (loading ? "..." : count === undefined ? "-" : count.toLocaleString());
  return html`<td class="n" data-label="Chunks" aria-busy=${loading}>${shown(data?.chunk_count)}</td><td class="n" data-label="Documents">${shown(data?.document_count)}</td><td class="n" data-label="Disk">${loading ? "..." : sizeOf(data?.disk_bytes) || "-"}</td>`;
}

/** @param {{ why: string }} props */
function Register({ why }) {
  const { embeddingModels, refresh, say } = useSession();
  const { data } = useLoad((signal) => get("v1/providers", signal), []);
  const providers = (data?.data ?? []).filter((/** @type {any} */ one) => one.kind === "vector_io");
  const submit = async (/** @type {any} */ event) => {
    event.preventDefault();
    const { size, mark, ...body } = /** @type {any} */ (Object.fromEntries(new FormData(event.target)));
    if (size || mark) {
      body.chunking = {};
      if (size) Object.assign(body.chunking, { chunk_size_in_tokens: Number(size), overlap_in_tokens: Math.floor(size / 8) });
      if (mark) body.chunking.split_on = /^[1-6]$/.test(mark) ? Number(mark) : mark;
    }
    try {
      const made = await post("v1/vector-dbs", body);
      await refresh();
      go(address(["dbs", made.identifier, "documents"]));
    } catch (/** @type {any} */ error) {
      say(error.message, true);
    }
  };
  return html`<section class="card" aria-labelledby="register-title"><h2 id="register-title">Register a vector DB</h2><${NotAllowed} why=${why} />
    <form id="register-form" class="options" onSubmit=${submit}><${Field} label="Id"><input name="vector_db_id" required maxlength="255" disabled=${Boolean(why)} /><//>
      <${Field} label="Provider"><select name="provider_id" disabled=${Boolean(why)}>${providers.map((/** @type {any} */ one) => html`<option value=${one.provider_id}>${one.provider_id} (${one.provider_type})</option>`)}</select><//>
      <${Field} label="Embedding model"><select name="embedding_model" disabled=${Boolean(why)}>${embeddingModels.map((one) => html`<option value=${one.identifier} selected=${one.metadata.default}>${one.identifier}</option>`)}</select><//>
      <${Field} label="Search mode"><select name="search_mode" disabled=${Boolean(why)}>${["hybrid", "vector", "keyword"].map((mode) => html`<option value=${mode}>${mode}</option>`)}</select><//>
      <${Field} label="Language"><input name="language" value="english" required disabled=${Boolean(why)} /><//>
      <${Field} label="Chunk size in tokens"><input name="size" type="number" min="1" max="8192" placeholder="256" disabled=${Boolean(why)} /><//>
      <${Field} label="Chunks end at a text, or headings of level 1-6"><input name="mark" maxlength="100" disabled=${Boolean(why)} /><//>
      <p><button class="primary" disabled=${Boolean(why) || providers.length === 0}>Register</button></p></form></section>`;
}
