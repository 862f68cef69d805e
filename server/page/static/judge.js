// Judgments: which chunk answers which question. They become the questions of corral bench tune.

import { element, fill, find } from "./elements.js";
import { current } from "./registry.js";

const marks = new Map(); // question -> Map(chunk id -> "right" | "wrong")
const LEAST = 10;

export const verdict = (question, chunk) => marks.get(question)?.get(chunk);

// Set a mark; the same one again takes it back.
export function judge(question, chunk, said) {
  const about = marks.get(question) ?? new Map();
  if (about.get(chunk) === said) about.delete(chunk);
  else about.set(chunk, said);
  marks.set(question, about);
  show();
}

// One JSON object a line, as `corral bench tune --queries` reads them.
export function lines() {
  return [...marks].map(([query, about]) => ({ query, relevant: [...about].filter(([, said]) => said === "right").map(([chunk]) => chunk) }))
    .filter((row) => row.relevant.length > 0).map((row) => `${JSON.stringify(row)}\n`).join("");
}

function show() {
  const text = lines();
  const count = text.split("\n").length - 1;
  const rest = count < LEAST ? `; tuning needs ${LEAST}` : "";
  find("judged").textContent = `${count} judged question${count === 1 ? "" : "s"}${rest}.`;
  const link = find("download");
  link.hidden = count === 0;
  URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
  find("tune").hidden = count === 0;
  fill(find("tune"), [element("code", {}, `corral bench tune --db '${(current?.identifier ?? "").replaceAll("'", "'\\''")}' --queries questions.jsonl`)]);
}
