// The search settings: they start as the vector DB was registered; only what is moved is sent.

import { find } from "./elements.js";
import { current } from "./registry.js";

const ALPHA = find("alpha").defaultValue;
const LAMBDA = find("lambda").defaultValue;
const DEFAULTS = { search_mode: "hybrid", ranker: { type: "weighted", normalization: "z_score" }, rerank: null };

const registered = () => current ?? DEFAULTS;
const moved = (id) => find(id).value !== find(id).defaultValue;
export const number = (id) => Number(find(id).value);

// Set the settings to what the current vector DB was registered with.
export function asRegistered() {
  const { search_mode: mode, ranker, rerank } = registered();
  find("mode").value = mode;
  begin("alpha", ranker.alpha ?? ALPHA);
  begin("lambda", rerank?.lambda ?? LAMBDA);
  find("mmr").checked = rerank?.type === "mmr";
}

function begin(id, value) {
  find(id).value = value;
  find(id).defaultValue = find(id).value; // as the slider rounds it
  shown(find(id));
}

// Show where a slider stands; alpha means nothing to a registered ranker of another type.
export function shown(input) {
  const output = input.parentElement.querySelector("output");
  const { type } = registered().ranker;
  const other = input.id === "alpha" && type !== "weighted" && !moved("alpha");
  if (output) output.textContent = other ? type : input.value;
}

// What a request says differently from the registration.
export function changes() {
  const { search_mode: mode, ranker, rerank } = registered();
  const said = {};
  if (find("mode").value !== mode) said.mode = find("mode").value;
  if (moved("alpha")) said.ranker = { ...(ranker.type === "weighted" ? ranker : DEFAULTS.ranker), alpha: number("alpha") };
  const wasMMR = rerank?.type === "mmr";
  const isMMR = find("mmr").checked;
  if (wasMMR && !isMMR) said.rerank = { type: "none" };
  if (isMMR && (!wasMMR || moved("lambda"))) said.rerank = { ...(wasMMR ? rerank : {}), type: "mmr", lambda: number("lambda") };
  return said;
}

// The settings as another registration takes them.
export function found() {
  const { ranker, rerank } = { ...registered(), ...changes() };
  return { search_mode: find("mode").value, ranker, rerank };
}
