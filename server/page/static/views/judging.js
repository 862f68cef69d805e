// Judgments of hits: right or wrong, for each question of a vector DB, in a set on the server.

import { post } from "../api.js";
import { html, useRef, useState } from "../html.js";
import { refusal, told, useLoad, useSession } from "../session.js";

const PATH = "v1/judgments";
export const RIGHT = 1;
export const WRONG = 0;

/** The set that an address names. @param {URLSearchParams} query */
export const setOf = (query) => query.get("set") || "main";

/**
 * Judge chunks for a question.
 * @param {string} db
 * @param {string} name of the set, which is created if it does not exist
 * @param {string} question
 * @param {Record<string, number | null>} grades by chunk; null takes a judgment back
 * @param {boolean} [suggested]
 */
export const judge = (db, name, question, grades, suggested = false) => post(`${PATH}/questions`, { vector_db_id: db, name, question, grades, suggested });

/**
 * The grades of the chunks of a question, and a way to change them: the same one again takes it back.
 * @param {string} db
 * @param {string} question
 * @param {string} name of the set
 */
export function useJudgments(db, question, name) {
  const { who, say } = useSession();
  const { data } = useLoad((signal) => post(`${PATH}/questions/show`, { vector_db_id: db, name, question }, signal), [db, question, name]);
  const [changed, change] = useState(/** @type {any} */ (null));
  const last = useRef(Promise.resolve());
  const grades = changed ?? data?.question?.grades ?? {};
  const give = (/** @type {string} */ chunk, /** @type {number} */ grade) => {
    const now = grades[chunk] === grade ? null : grade;
    last.current = last.current.then(async () => {
      try {
        change((await judge(db, name, question, { [chunk]: now })).question?.grades ?? {});
      } catch (error) {
        say(told(error), true);
      }
    });
  };
  return { grades, give, why: refusal(who, "writer") || (data ? "" : "The judgments are being loaded.") };
}

/** @param {{ judgments: any, chunk: any, about: string }} props */
export function Judge({ judgments: { grades, give, why }, chunk: { chunk_id: id }, about }) {
  const verdicts = [["Right", RIGHT], ["Wrong", WRONG]];
  return html`<p class="actions">${verdicts.map(([label, grade]) => html`<button type="button" data-said=${String(label).toLowerCase()} title=${why || undefined} disabled=${Boolean(why)} aria-pressed=${grade ? grades[id] > 0 : grades[id] === 0} aria-label=${`${label}: ${about}`} onClick=${() => give(id, Number(grade))}>${label}</button>`)}</p>`;
}
