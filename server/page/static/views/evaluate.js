// Evaluate: the judged questions, and instructions for tuning the vector DB with them.

import { get } from "../api.js";
import { html, useState } from "../html.js";
import { counted } from "../names.js";
import { useLoad } from "../session.js";
import { Act, Head, Sure } from "../widgets.js";
import { judged, keep, lines } from "./judging.js";

const LEAST = 10;

/** @param {{ db: any }} props */
export function Evaluate({ db }) {
  const [rows, set] = useState(judged(db.identifier));
  const { data } = useLoad((signal) => get("v1/providers", signal), []);
  const provider = data?.data.find((/** @type {any} */ one) => one.provider_id === db.provider_id);
  const text = lines(db.identifier);
  const count = text.split("\n").length - 1;
  const forget = () => {
    keep(db.identifier, []);
    set([]);
  };
  const download = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
    link.download = "questions.jsonl";
    link.click();
    URL.revokeObjectURL(link.href);
  };
  return html`<${Head} title="Evaluate" lead="Ask, open the reasons, and mark hits as right or wrong. With twenty judged questions Corral can tune the settings on your data." />
    <p id="judged">${counted(count, "judged question")}${count < LEAST ? `; tuning needs ${LEAST}` : ""}. They are kept in this browser.</p>
    <ul>${rows.map(([question, verdicts]) => html`<li dir="auto">${question} <span class="quiet">${counted(verdicts.length, "verdict")}</span></li>`)}</ul>
    ${rows.length > 0 && html`<p class="actions"><${Act} act=${download}>Download the questions<//><${Sure} sure="Delete all?" act=${forget}>Delete the judgments<//></p>`}
    ${count > 0 && provider && html`<h2>Tune</h2><pre id="tune" tabindex="0" role="group" aria-label="How to tune">${tuning(db.identifier, provider)}</pre>`}`;
}

/** Instructions for tuning a vector DB. The command opens its files while this server runs. @param {string} id @param {any} provider */
function tuning(id, { provider_type: type, capabilities }) {
  if (capabilities?.persistent === false) return `# ${type} keeps nothing that a command could tune. Ingest into another provider, such as inline::sqlite.`;
  const command = `corral bench tune --db '${id.replaceAll("'", "'\\''")}' --queries questions.jsonl`;
  return capabilities?.concurrent_processes === false ? `# ${type} serves one process at a time: stop this server first.\n${command}` : command;
}
