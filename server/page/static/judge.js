// Judgments: which chunk answers which question. They become the questions of corral bench tune.

import { element, fill, find, say } from "./elements.js";
import { current, provider } from "./registry.js";
import { read, write } from "./stored.js";

const marks = new Map(); // vector DB -> question -> chunk id -> "right" | "wrong"
const LEAST = 10;
const INVITATION = find("judged").textContent;

export const verdict = ({ db, question }, chunk) => marksOf(db).get(question)?.get(chunk);

// Set a mark; the same one again takes it back.
export function judge({ db, question }, chunk, said) {
  const judged = marksOf(db);
  if (!judged.has(question)) judged.set(question, new Map());
  const about = judged.get(question);
  if (about.get(chunk) === said) about.delete(chunk);
  else about.set(chunk, said);
  keep(db, judged);
}

// Delete the judgments of the current vector DB.
export function forget() {
  keep(current.identifier, new Map());
  for (const button of document.querySelectorAll("button[data-said]")) button.setAttribute("aria-pressed", "false");
}

// The judgments of a vector DB; the first time, those that an earlier visit left.
function marksOf(db) {
  if (!marks.has(db)) marks.set(db, new Map((read(`judgments.${db}`) ?? []).map(([question, about]) => [question, new Map(about)])));
  return marks.get(db);
}

function keep(db, judged) {
  marks.set(db, judged);
  const rows = [...judged].filter(([, about]) => about.size > 0).map(([question, about]) => [question, [...about]]);
  if (!write(`judgments.${db}`, rows.length > 0 ? rows : null)) say("This browser keeps no judgments: download them before you leave.", true);
  showJudged();
}

// Another tab has judged.
addEventListener("storage", () => {
  marks.clear();
  showJudged();
});

// One JSON object a line, as `corral bench tune --queries` reads them; of the current vector DB.
export function lines() {
  return [...current ? marksOf(current.identifier) : []].map(([query, about]) => ({ query, relevant: [...about].filter(([, said]) => said === "right").map(([chunk]) => chunk) }))
    .filter((row) => row.relevant.length > 0).map((row) => `${JSON.stringify(row)}\n`).join("");
}

// Show what was judged of the current vector DB.
export function showJudged() {
  const text = lines();
  const count = text.split("\n").length - 1;
  const rest = count < LEAST ? `; tuning needs ${LEAST}` : "";
  find("judged").textContent = count === 0 ? INVITATION : `${count} judged question${count === 1 ? "" : "s"}${rest}.`;
  find("forget").hidden = !current || marksOf(current.identifier).size === 0;
  const link = find("download");
  link.hidden = count === 0;
  URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
  find("tune").hidden = count === 0;
  fill(find("tune"), [element("code", {}, tuning())]);
}

// How to tune the current vector DB. The command opens its files, beside this server.
function tuning() {
  const { provider_type: type, capabilities } = provider() ?? {};
  if (capabilities?.persistent === false) return `# ${type} keeps nothing that a command could tune. Ingest into another provider, such as inline::sqlite.`;
  const command = `corral bench tune --db '${(current?.identifier ?? "").replaceAll("'", "'\\''")}' --queries questions.jsonl`;
  return capabilities?.concurrent_processes === false ? `# ${type} serves one process at a time: stop this server first.\n${command}` : command;
}
