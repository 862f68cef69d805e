// Settings: the registration of a vector DB, its size, and a button to delete it.

import { get, remove, dbPath } from "../api.js";
import { html } from "../html.js";
import { sizeOf, timeOf } from "../names.js";
import { address, go } from "../router.js";
import { refusal, useLoad, useSession } from "../session.js";
import { Facts, Failed, Head, NotAllowed, Sure } from "../widgets.js";

/** What tells vector DBs apart comes first. */
const FIRST = ["identifier", "provider_id", "chunk_count", "document_count", "disk_bytes", "embedding_model", "embedding_dimension", "language", "search_mode", "ranker", "rerank"];

/** The names and values to show. @param {Record<string, any>} data @returns {[string, unknown][]} */
function ordered(data) {
  const readable = { ...data, disk_bytes: sizeOf(data.disk_bytes) || null, created_at: timeOf(data.created_at) };
  const names = [...FIRST, ...Object.keys(data).filter((name) => !FIRST.includes(name))];
  return names.map((name) => /** @type {[string, unknown]} */ ([name, readable[name] ?? null])).filter(([, value]) => value !== null);
}

/** @param {{ db: any }} props */
export function Settings({ db }) {
  const { who, refresh } = useSession();
  const { data, error } = useLoad((signal) => get(`${dbPath(db.identifier)}?counts=true`, signal), []);
  const why = refusal(who, "admin");
  const erase = async () => {
    await remove(dbPath(db.identifier));
    await refresh();
    go(address(["dbs"]));
  };
  return html`<${Head} title=${html`Settings <bdi class="of">${db.identifier}</bdi>`} lead="What this vector DB is registered with. A request can override how to search; the model and the language stay." />
    <${Failed} error=${error} />${data && html`<${Facts} of=${ordered(data)} />`}
    <section class="card" aria-labelledby="delete-title"><h2 id="delete-title">Delete the vector DB</h2><p>All of its chunks and jobs go with it.</p><${NotAllowed} why=${why} />
      <${Sure} why=${why} sure=${`Delete ${db.identifier}?`} act=${erase}>Delete the vector DB<//></section>`;
}
