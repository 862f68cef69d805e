// Keys: create a key, which is shown once, and revoke keys.

import { get, post } from "../api.js";
import { html, useState } from "../html.js";
import { timeOf } from "../names.js";
import { refusal, useLoad, useSession } from "../session.js";
import { Act, copy, Failed, Field, Head, NotAllowed, Sure, Table } from "../widgets.js";

const PAGE_SIZE = 50;

export function Keys() {
  const { who } = useSession();
  const why = refusal(who, "admin", true);
  return html`<${Head} title="Keys" lead="As soon as there is a key, every request needs one." />${why ? html`<${NotAllowed} why=${why} />` : html`<${List} />`}`;
}

function List() {
  const { say, who } = useSession();
  const { data, error, reload } = useLoad((signal) => get("v1/keys", signal), []);
  const [made, show] = useState(/** @type {any} */ (null));
  const [shown, more] = useState(PAGE_SIZE);
  const create = async (/** @type {any} */ event) => {
    event.preventDefault();
    const { user, role, tenant, groups, days } = Object.fromEntries(new FormData(event.target));
    try {
      show(await post("v1/keys", { user, role, tenant, groups: String(groups).split(/[\s,]+/).filter(Boolean), expires_in_days: days ? Number(days) : null }));
      event.target.reset();
      reload();
    } catch (/** @type {any} */ problem) {
      if (problem.status !== 401) say(problem.message, true);
    }
  };
  const isFirst = data?.data.length === 0;
  return html`<section class="card"><h2>Create a key</h2>
    ${isFirst && html`<p class="notice">This is the first key: from then on this page needs one, too. Create one of the role admin, and copy it.</p>`}
    <form id="new-key" class="options" onSubmit=${create}><${Field} label="User"><input name="user" required maxlength="255" /><//>
      <${Field} label="Role"><select name="role">${["reader", "writer", "admin"].map((role) => html`<option value=${role} selected=${isFirst && role === "admin"}>${role}</option>`)}</select><//>
      <${Field} label="Tenant" note="Empty: the default tenant"><input name="tenant" maxlength="255" /><//>
      <${Field} label="Groups" note="With spaces between"><input name="groups" /><//>
      <${Field} label="Valid for days" note="Empty: for ever"><input name="days" type="number" min="1" /><//>
      <p><button class="primary">Create</button></p></form>
    ${made && html`<div class="notice" role="status"><p>The key of <bdi>${made.user}</bdi>, shown this once: only its hash is stored.</p><p><code id="secret">${made.key}</code> <${Act} act=${() => copy(made.key).then(() => say("Copied."))}>Copy<//> <button type="button" onClick=${() => show(null)}>Hide</button></p></div>`}</section>
    <${Failed} error=${error} />
    ${data?.data.length > 0 && html`<${Table} label="Keys" css="stacks"><thead><tr><th scope="col">Id</th><th scope="col">User</th><th scope="col">Role</th><th scope="col">Tenant</th><th scope="col">State</th><th scope="col">Last used</th><th scope="col"><span class="announcement">Actions</span></th></tr></thead>
      <tbody id="keys">${data.data.slice(0, shown).map((/** @type {any} */ key) => html`<tr key=${key.key_id}><th scope="row"><code>${key.key_id}</code></th><td class="wraps" data-label="User"><bdi>${key.user}</bdi></td><td data-label="Role">${key.role}</td><td data-label="Tenant"><bdi>${key.tenant || "-"}</bdi></td><td class=${key.state === "valid" ? "better" : "quiet"} data-label="State">${key.state}</td><td data-label="Last used">${key.last_used_at ? timeOf(key.last_used_at) : "never"}</td>
        <td class="n">${key.state === "valid" && html`<${Sure} sure=${key.key_id === who.key_id ? "It is yours. Revoke it?" : "Revoke it?"} act=${() => post(`v1/keys/${key.key_id}/revoke`).then(reload)}>Revoke<//>`}</td></tr>`)}</tbody><//>`}
    ${data?.data.length > shown && html`<p><button type="button" onClick=${() => more(shown + PAGE_SIZE)}>Show more</button></p>`}`;
}
