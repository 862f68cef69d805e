// Ask: a question, its answer with sources, and an explanation of each hit.

import { html, useEffect, useState } from "../html.js";
import { address, go } from "../router.js";
import { answerRequest, asUser, isChanged, ragRequest } from "../searching.js";
import { useSession } from "../session.js";
import { CopyButtons } from "../widgets.js";
import { Answer } from "./answer.js";
import { Context } from "./context.js";
import { Options } from "./options.js";
import { Why } from "./why.js";

/** @param {{ db: any, query: URLSearchParams }} props */
export function Ask({ db, query }) {
  const { languageModels } = useSession();
  const as = asUser(query);
  const [model] = languageModels;
  const asked = query.get("q") ?? "";
  const [text, type] = useState(asked);
  const [turn, again] = useState(0);
  useEffect(() => type(asked), [asked]);
  const change = (/** @type {Record<string, any>} */ changes, replace = false) => go(address(["dbs", db.identifier, "ask"], { ...grouped(query), ...changes }), replace);
  const submit = (/** @type {any} */ event) => {
    event.preventDefault();
    if (!text.trim()) return;
    if (text === asked) again(turn + 1);
    else change({ q: text });
    document.getElementById("question")?.blur(); // on a phone, the keyboard would hide the answer
  };
  const send = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
  };
  const asking = new URLSearchParams(query);
  asking.delete("show"); // open parts do not affect the answer
  const key = `${asking}|${turn}`;
  return html`
    <form class="ask" role="search" onSubmit=${submit}>
      <h1><label for="question">Ask <bdi class="of">${db.identifier}</bdi></label></h1>
      <div class="bar"><textarea id="question" rows="2" maxlength="10000" placeholder="A question in your own words" required value=${text} onInput=${(/** @type {any} */ event) => type(event.target.value)} onKeyDown=${send}></textarea>
      <button class="primary">Ask</button></div>
    </form>
    ${asked && as && html`<p class="notice" id="asked-as">${readsAs(as)}</p>`}
    ${asked && (model ? html`<${Answer} key=${key} query=${query} db=${db} model=${model} />` : html`<${Context} key=${key} query=${query} db=${db} isAnswer />`)}
    ${asked && html`<${Closed} name="why" query=${query} change=${change} label="Why these sources: ranks and scores in each mode"><${Why} key=${key} query=${query} db=${db} /><//>`}
    ${asked && model && html`<${Closed} name="context" query=${query} change=${change} label="The context that a model reads"><${Context} key=${key} query=${query} db=${db} /><//>`}
    <${Closed} name="options" query=${query} change=${change} label=${isChanged(query) || query.has("also") || as ? "Search settings (changed)" : "Search settings"}><${Options} query=${query} db=${db} change=${change} /><//>
    ${asked && html`<${Closed} name="copies" query=${query} change=${change} label="Ask this from a program"><${Copies} query=${query} db=${db} model=${model} /><//>`}`;
}

/** @param {{ user: string, groups: string[] }} as */
const readsAs = ({ user, groups }) => `Everything below is made of what ${user || "a user without a name"}${groups.length ? ` of ${groups.join(", ")}` : ""} may read.`;

/** The pairs of an address, with lists where a name repeats. @param {URLSearchParams} query */
const grouped = (query) => Object.fromEntries([...new Set(query.keys())].map((name) => [name, query.getAll(name)]));

/**
 * A part that is closed unless the address says that it is open.
 * @param {{ name: string, label: string, query: URLSearchParams, change: (changes: Record<string, any>, replace?: boolean) => void, children?: unknown }} props
 */
function Closed({ name, label, query, change, children }) {
  const open = query.getAll("show").includes(name);
  const shown = (/** @type {any} */ event) => {
    const others = query.getAll("show").filter((one) => one !== name);
    if (event.target === event.currentTarget && event.target.open !== open) change({ show: event.target.open ? [...others, name] : others }, true);
  };
  return html`<details id=${`part-${name}`} open=${open} onToggle=${shown}><summary>${label}</summary>${open && children}</details>`;
}

/** @param {{ query: URLSearchParams, db: any, model?: string }} props */
function Copies({ query, db, model }) {
  return html`${model && html`<h3>The answer</h3><${CopyButtons} path="v1/responses" body=${{ ...answerRequest(query, db, model), stream: false }} />`}
    <h3>The context</h3><${CopyButtons} path="v1/tool-runtime/rag-tool/query" body=${ragRequest(query, db)} />`;
}
