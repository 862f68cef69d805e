// The answer to a question, with numbers that lead to its sources.

import { post } from "./api.js";
import { element, fill, find, pageLink } from "./elements.js";

let latest = 0;

export function clearAnswer() {
  latest += 1;
  find("answer-section").hidden = true;
  fill(find("answer"), []);
  fill(find("sources"), []);
}

// Ask for an answer and show it; a late one is dropped. A server without a language model shows none.
export async function answer(question, vectorDB) {
  const turn = ++latest;
  const body = { model: `corral/${vectorDB}`, input: question, store: false };
  let response;
  try {
    response = await post("v1/responses", body);
  } catch (error) {
    if (turn === latest) show(element("em", {}, error.message), []);
    return;
  }
  if (turn !== latest) return;
  const part = response.output.at(-1)?.content?.[0] ?? {};
  const sources = new Map();
  for (const cited of part.annotations ?? []) {
    if (!sources.has(cited.chunk_id)) sources.set(cited.chunk_id, { ...cited, number: sources.size + 1 });
  }
  show(numbered(part, sources), [...sources.values()].map((one) => element("li", {}, link(one, vectorDB), place(one))));
}

function show(text, sources) {
  fill(find("answer"), [text]);
  fill(find("sources"), sources);
  find("answer-section").hidden = false;
}

// An index counts code points, and strings here count UTF-16.
function numbered({ text = "", refusal = "", annotations = [] }, sources) {
  const points = [...(text || refusal)];
  const made = new DocumentFragment();
  let end = 0;
  for (const { index, chunk_id: chunk } of annotations) {
    made.append(points.slice(end, index).join(""), element("sup", {}, `[${sources.get(chunk).number}]`));
    end = index;
  }
  made.append(points.slice(end).join(""));
  return made;
}

function link({ filename, document_id: document, chunk_id: chunk }, vectorDB) {
  return pageLink(filename, vectorDB, document, chunk);
}

function place({ page, line_start: line }) {
  return page ? `, page ${page}` : line ? `, line ${line}` : "";
}
