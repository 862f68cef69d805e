// Settings: the registration of a vector DB, its size, and a button to delete it.

import { get, remove, dbPath } from "../api.js";
import { html } from "../html.js";
import { address, go } from "../router.js";
import { refusal, useLoad, useSession } from "../session.js";
import { Facts, Failed, Head, NotAllowed, Sure } from "../widgets.js";

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
  return html`<${Head} title="Settings" lead="What this vector DB is registered with. A request can override how to search; the model and the language stay." />
    <${Failed} error=${error} />${data && html`<${Facts} of=${Object.entries(data).filter(([, value]) => value !== null)} />`}
    <section class="card" aria-labelledby="delete-title"><h2 id="delete-title">Delete the vector DB</h2><p>All of its chunks and jobs go with it.</p><${NotAllowed} why=${why} />
      <${Sure} why=${why} sure=${`Delete ${db.identifier}?`} act=${erase}>Delete the vector DB<//></section>`;
}
