// The search settings: initially as registered; changes go into the address.

import { html, useEffect, useRef, useState } from "../html.js";
import { DEFAULTS } from "../searching.js";
import { refusal, useSession } from "../session.js";
import { Field } from "../widgets.js";

const SLOW_MS = 150;
const MOST_LISTED = 50;

/** @param {{ query: URLSearchParams, db: any, change: (changes: Record<string, any>, replace?: boolean) => void }} props */
export function Options({ query, db, change }) {
  const { dbs, who } = useSession();
  const why = refusal(who, "admin");
  const set = (/** @type {string} */ name) => (/** @type {string} */ value) => change({ [name]: value }, true);
  const alpha = db.ranker?.type === "weighted" ? db.ranker.alpha ?? 0.55 : null;
  const mmr = query.get("mmr") ?? (db.rerank?.type === "mmr" ? "on" : "off");
  const also = query.getAll("also");
  const others = dbs.filter((one) => one.identifier !== db.identifier).slice(0, MOST_LISTED);
  const include = (/** @type {string} */ id, /** @type {boolean} */ yes) => change({ also: yes ? [...also, id] : also.filter((one) => one !== id) }, true);
  return html`<div class="options">
    <${Field} label="Mode"><select id="mode" value=${query.get("mode") ?? db.search_mode} onChange=${(/** @type {any} */ event) => change({ mode: event.target.value === db.search_mode ? "" : event.target.value }, true)}>${["vector", "keyword", "hybrid"].map((mode) => html`<option value=${mode}>${mode}${mode === db.search_mode ? " (registered)" : ""}</option>`)}</select><//>
    <${Slider} id="k" label="Hits" min="1" max="50" step="1" at=${query.get("k") ?? DEFAULTS.k} set=${set("k")} />
    <${Slider} id="alpha" label="Weight of vectors (alpha)" min="0" max="1" step="0.01" at=${query.get("alpha") ?? alpha} otherwise=${db.ranker?.type} set=${set("alpha")} />
    <${Slider} id="threshold" label="Least score" min="0" max="1" step="0.01" at=${query.get("threshold") ?? DEFAULTS.threshold} set=${set("threshold")} />
    <${Slider} id="tokens" label="Tokens in the context" min="100" max="8000" step="100" at=${query.get("tokens") ?? DEFAULTS.tokens} set=${set("tokens")} />
    <${Field} label="Diversity (MMR)"><select id="mmr" value=${mmr} onChange=${(/** @type {any} */ event) => change({ mmr: event.target.value }, true)}><option value="off">off</option><option value="on">on</option></select><//>
    ${mmr === "on" && html`<${Slider} id="lambda" label="Relevance against diversity (lambda)" min="0" max="1" step="0.01" at=${query.get("lambda") ?? db.rerank?.lambda ?? 0.5} set=${set("lambda")} />`}
    <${Filter} at=${query.get("filter") ?? ""} set=${set("filter")} />
    ${others.length > 0 && html`<fieldset><legend>Ask these as well</legend>${others.map((one) => html`<label class="check"><input type="checkbox" checked=${also.includes(one.identifier)} onChange=${(/** @type {any} */ event) => include(one.identifier, event.target.checked)} /> <bdi>${one.identifier}</bdi></label>`)}</fieldset>`}
    <fieldset><legend>Ask as another user</legend>${why ? html`<p class="quiet">${why}</p>` : html`<${Field} label="User"><input id="as" value=${query.get("as") ?? ""} maxlength="255" onChange=${(/** @type {any} */ event) => set("as")(event.target.value.trim())} /><//>
      <${Field} label="Groups" note="With spaces between"><input id="groups" value=${query.get("groups") ?? ""} onChange=${(/** @type {any} */ event) => set("groups")(event.target.value.trim())} /><//>`}</fieldset>
    <p><button type="button" onClick=${() => change(Object.fromEntries(["mode", "k", "alpha", "threshold", "tokens", "mmr", "lambda", "filter", "also", "as", "groups"].map((name) => [name, ""])), true)}>As registered</button></p></div>`;
}

/** @param {{ id: string, label: string, min: string, max: string, step: string, at: string | number | null, otherwise?: string, set: (value: string) => void }} props */
function Slider({ id, label, at, otherwise, set, ...range }) {
  const [moved, move] = useState(/** @type {string | null} */ (null));
  const pending = useRef(0);
  useEffect(() => move(null), [at]);
  const input = (/** @type {any} */ event) => {
    move(event.target.value);
    clearTimeout(pending.current);
    pending.current = setTimeout(set, SLOW_MS, event.target.value);
  };
  const shown = moved ?? at;
  return html`<label class="field" for=${id}><span>${label} <output for=${id}>${shown ?? otherwise}</output></span><input type="range" id=${id} ...${range} value=${shown ?? 0.55} onInput=${input} /></label>`;
}

/** @param {{ at: string, set: (value: string) => void }} props */
function Filter({ at, set }) {
  const [text, type] = useState(at);
  const [refused, refuse] = useState("");
  useEffect(() => type(at), [at]);
  const use = () => {
    try {
      if (text) JSON.parse(text);
      refuse("");
      set(text);
    } catch {
      refuse("This is not JSON yet.");
    }
  };
  return html`<${Field} label="Filter (JSON)" note=${refused || 'Such as {"type": "eq", "key": "year", "value": 2024}'}><textarea id="filter" rows="2" value=${text} aria-invalid=${Boolean(refused)} onInput=${(/** @type {any} */ event) => type(event.target.value)} onChange=${use}></textarea><//>`;
}
