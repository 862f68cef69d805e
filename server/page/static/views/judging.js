// Judgments of hits: right or wrong, for each question of a vector DB.

import { html, useState } from "../html.js";

const PREFIX = "corral.judgments.";

/**
 * The judgments on a vector DB in this browser: pairs of a question and its verdicts by chunk.
 * @param {string} db
 * @returns {[string, [string, string][]][]}
 */
export function judged(db) {
  try {
    return JSON.parse(localStorage.getItem(PREFIX + db) ?? "[]");
  } catch {
    return [];
  }
}

/** @param {string} db @param {[string, [string, string][]][]} rows */
export function keep(db, rows) {
  const filled = rows.filter(([, verdicts]) => verdicts.length > 0);
  if (filled.length > 0) localStorage.setItem(PREFIX + db, JSON.stringify(filled));
  else localStorage.removeItem(PREFIX + db);
}

/** One JSON object per line, as `corral bench tune --queries` reads them. @param {string} db */
export function lines(db) {
  return judged(db).map(([query, verdicts]) => ({ query, relevant: verdicts.filter(([, said]) => said === "right").map(([chunk]) => chunk) }))
    .filter((row) => row.relevant.length > 0).map((row) => `${JSON.stringify(row)}\n`).join("");
}

/**
 * The verdicts on the hits of a question, and a function that sets one, or removes it if it is the same.
 * @param {string} db
 * @param {string} question
 */
export function useJudgments(db, question) {
  const [all, set] = useState(judged(db));
  const about = new Map(all.find((/** @type {any} */ [asked]) => asked === question)?.[1] ?? []);
  const judge = (/** @type {string} */ chunk, /** @type {string} */ said) => {
    if (about.get(chunk) === said) about.delete(chunk);
    else about.set(chunk, said);
    const rows = [...judged(db).filter(([asked]) => asked !== question), /** @type {[string, [string, string][]]} */ ([question, [...about]])];
    keep(db, rows);
    set(rows);
  };
  return { about, judge };
}

/** @param {{ judgments: any, chunk: any, about: string }} props */
export const Judge = ({ judgments, chunk, about }) => html`<p class="actions">${["right", "wrong"].map((said) => html`<button type="button" data-said=${said} aria-pressed=${judgments.about.get(chunk.chunk_id) === said} aria-label=${`${said === "right" ? "Right" : "Wrong"}: ${about}`} onClick=${() => judgments.judge(chunk.chunk_id, said)}>${said === "right" ? "Right" : "Wrong"}</button>`)}</p>`;
