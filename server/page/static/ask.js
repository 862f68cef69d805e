// A question in all three modes side by side, and the context that a model would get.

import { answer, clearAnswer } from "./answer.js";
import { post } from "./api.js";
import { element, fill, find, marked, nameOf, pageLink, say } from "./elements.js";
import { judge, verdict } from "./judge.js";
import { current } from "./registry.js";
import { changes, number } from "./settings.js";
import { write } from "./stored.js";

const MODES = ["vector", "keyword", "hybrid"];
const RAG = "v1/tool-runtime/rag-tool/query";
const SHOWN = ["results", "confidence", "context-section"];
let asked = "";
let latest = 0;
let unseen = false; // whether the question is new, and its answer has not been shown

export function ragRequest() {
  const config = { ...searching(find("mode").value), max_tokens_in_context: number("tokens") };
  return { content: asked, vector_db_ids: [current.identifier], query_config: config };
}

export async function ask(question) {
  if (!current) {
    say("Register a vector DB first.", true);
    return;
  }
  clear();
  asked = question;
  write("question", question);
  unseen = true;
  await again();
}

// Scroll to the answer if it is out of sight, as on a phone; once for each question.
function reveal() {
  unseen = false;
  const answer = find(find("confidence").hidden ? "results" : "confidence");
  const { top } = answer.getBoundingClientRect();
  if (top < 0 || top > innerHeight * 0.7) answer.scrollIntoView();
}

// Take away what an earlier question found, so that nothing is judged or copied as the next one's.
export function clear() {
  latest += 1;
  clearAnswer();
  for (const id of SHOWN) find(id).hidden = true;
  for (const id of [...MODES, "dropped", "context"]) fill(find(id), []);
}

// Ask the same question once more, after a setting has changed. Late answers are dropped.
export async function again() {
  if (!asked || !current) return;
  const turn = ++latest;
  const about = { db: current.identifier, question: asked };
  try {
    const answers = await answered();
    if (turn !== latest) return;
    show(answers, about);
    answer(asked, current.identifier);
  } catch (error) {
    if (turn !== latest) return;
    clear();
    throw error;
  }
}

// The answer of the RAG tool, and then the chunks of each mode.
function answered() {
  const context = ragRequest();
  context.query_config.explain = true;
  return Promise.all([post(RAG, context), ...MODES.map((mode) => post("v1/vector-io/query", request(mode)))]);
}

function show([answer, ...found], about) {
  MODES.forEach((mode, n) => fill(find(mode), hits(found[n], mode, about)));
  find("results").hidden = false;
  showConfidence(found[MODES.indexOf(find("mode").value)]);
  showContext(answer);
  if (unseen) reveal();
  say(`${found.map((one, n) => `${MODES[n]} ${one.chunks.length}`).join(", ")} hits.`);
}

function request(mode) {
  return { vector_db_id: current.identifier, query: asked, params: { ...searching(mode), mode, explain: true } };
}

// How to search in a mode, as far as the registration does not say it.
function searching(mode) {
  const { ranker, ...others } = changes();
  return { ...others, ...(ranker && mode === "hybrid" ? { ranker } : {}), max_chunks: number("k"), score_threshold: number("threshold") };
}

function hits(answer, mode, about) {
  if (answer.chunks.length === 0) return [element("li", {}, "Nothing found.")];
  return answer.chunks.map((chunk, n) => hit(chunk, answer.scores[n], answer.explanations[n], n + 1, mode, about));
}

function hit(chunk, score, why, rank, mode, about) {
  const legs = Object.entries(why.legs).map(([leg, part]) => {
    const share = why.contributions?.[leg];
    const adds = mode === "hybrid" && share !== undefined ? `, adds ${share.toFixed(3)}` : "";
    return `${leg}: rank ${part.rank}, score ${part.score.toFixed(3)}${adds}`;
  });
  const text = element("div", { class: "text", tabindex: "0", dir: "auto", role: "group", "aria-label": `Text of hit ${rank}, ${mode}` }, marked(chunk.content, why.matched_words));
  return element("li", {},
    element("strong", {}, `${rank}. ${score.toFixed(3)}`), " ",
    element("span", { class: "place" }, pageLink(nameOf(chunk), about.db, chunk.metadata.document_id ?? chunk.chunk_metadata?.document_id, chunk.chunk_id), place(chunk)),
    element("div", { class: "legs" }, legs.join("; ")),
    text,
    element("p", { class: "buttons" }, mark(chunk, "right", rank, mode, about), mark(chunk, "wrong", rank, mode, about)));
}

// A button that judges a hit; `about` says of which vector DB and question it is a hit.
function mark(chunk, said, rank, mode, about) {
  const pressed = verdict(about, chunk.chunk_id) === said;
  const press = () => {
    judge(about, chunk.chunk_id, said);
    for (const button of document.querySelectorAll(`button[data-chunk="${CSS.escape(chunk.chunk_id)}"]`)) {
      button.setAttribute("aria-pressed", verdict(about, chunk.chunk_id) === button.dataset.said);
    }
  };
  const name = said === "right" ? "Right" : "Wrong";
  return element("button", { type: "button", "data-chunk": chunk.chunk_id, "data-said": said, "aria-pressed": String(pressed), "aria-label": `${name}: hit ${rank}, ${mode}`, onclick: press }, name);
}

function place(chunk) {
  const about = chunk.chunk_metadata ?? {};
  const page = about.page ? `page ${about.page}` : about.line_start ? `lines ${about.line_start}-${about.line_end}` : "";
  const headings = about.heading_path ?? [];
  const others = headings[0] === chunk.metadata.title ? headings.slice(1) : headings;
  return ["", ...others, page].filter((part, n) => n === 0 || part).join(" › ");
}

function showConfidence(answer) {
  find("confidence").hidden = answer.confidence === undefined || answer.confidence === null;
  find("confidence").textContent = `Confidence that something here answers the question: ${answer.confidence?.toFixed(2)}`;
}

function showContext(answer) {
  const { token_count: spent = 0, max_tokens: most = number("tokens"), dropped_by_reason: reasons = {} } = answer.metadata;
  find("context-section").hidden = false;
  find("budget").max = most;
  find("budget").value = spent;
  find("spent").textContent = `${spent} of ${most} tokens`;
  fill(find("dropped"), Object.entries(reasons).map(([reason, count]) => cut(reason, count, answer.metadata.dropped_chunks)));
  const items = Array.isArray(answer.content) ? answer.content : [];
  find("context").textContent = items.map((item) => item.text).join("") || "(empty: nothing relevant was found)";
}

// Why chunks were cut, and from which documents.
function cut(reason, count, chunks) {
  const names = new Set(chunks.filter((one) => one.reason === reason).map((one) => one.document_id ?? one.chunk_id));
  const few = [...names].slice(0, 5).join(", ");
  return element("li", {}, `Cut, ${reason}: ${count} chunk${count === 1 ? "" : "s"} of ${few}${names.size > 5 ? ", ..." : ""}`);
}
