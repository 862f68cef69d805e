// Why: the hits of each mode side by side, with ranks, scores, shares and marked words.

import { post } from "../api.js";
import { html } from "../html.js";
import { marked } from "../marks.js";
import { documentOf, nameOf, wayTo } from "../names.js";
import { address, Link } from "../router.js";
import { askedDBs, asUser, searching } from "../searching.js";
import { refusal, useLoad, useSession } from "../session.js";
import { Failed, NotAllowed } from "../widgets.js";
import { Judge, setOf, useJudgments } from "./judging.js";

const MODES = ["vector", "keyword", "hybrid"];

/** @param {{ query: URLSearchParams, db: any }} props */
export function Why({ query, db }) {
  const { who } = useSession();
  const question = query.get("q") ?? "";
  const as = asUser(query);
  const { data, error } = useLoad((signal) => Promise.all(MODES.map((mode) => post("v1/vector-io/query", { ...(as && { as_user: as }), vector_db_id: db.identifier, query: question, params: { ...searching(query, db, mode), explain: true } }, signal))), []);
  const judgments = useJudgments(db.identifier, question, setOf(query));
  if (error) return html`<${Failed} error=${error} />`;
  if (!data) return html`<p class="quiet" role="status">Searching</p>`;
  return html`${askedDBs(query, db).length > 1 && html`<p class="quiet">These are the hits of <bdi>${db.identifier}</bdi> alone.</p>`}
    <${NotAllowed} why=${refusal(who, "writer") && `To judge what was found: ${refusal(who, "writer")}`} />
    <div id="results">${MODES.map((mode, n) => html`<section class="mode-${mode}" aria-labelledby="${mode}-title"><h3 id="${mode}-title" class="badge">${mode[0].toUpperCase() + mode.slice(1)}</h3>
      ${data[n].chunks.length === 0 && html`<p class="quiet">Nothing found.</p>`}
      <ol id=${mode} class="plain">${data[n].chunks.map((/** @type {any} */ chunk, /** @type {number} */ at) => html`<${Hit} key=${chunk.chunk_id} db=${db} chunk=${chunk} score=${data[n].scores[at]} why=${data[n].explanations[at]} rank=${at + 1} mode=${mode} judgments=${judgments} />`)}</ol></section>`)}</div>`;
}

/** @param {{ db: any, chunk: any, score: number, why: any, rank: number, mode: string, judgments: any }} props */
function Hit({ db, chunk, score, why, rank, mode, judgments }) {
  const legs = Object.entries(why.legs).map(([leg, part]) => {
    const share = why.contributions?.[leg];
    const adds = mode === "hybrid" && share !== undefined ? `, adds ${share.toFixed(3)}` : "";
    return `${leg}: rank ${part.rank}, score ${part.score.toFixed(3)}${adds}`;
  });
  return html`<li class="hit"><strong>${rank}. ${score.toFixed(3)}</strong> <span class="place"><${Link} to=${address(["dbs", db.identifier, "documents", documentOf(chunk)], { chunk: chunk.chunk_id })}><bdi>${nameOf(chunk)}</bdi><//> <span class="quiet">${wayTo(chunk)}</span></span>
    <div class="quiet">${legs.join("; ")}</div>
    <div class="text" tabindex="0" dir="auto" role="group" aria-label=${`Text of hit ${rank}, ${mode}`}>${marked(chunk.content, why.matched_words)}</div>
    <${Judge} judgments=${judgments} chunk=${chunk} about=${`hit ${rank}, ${mode}`} /></li>`;
}
