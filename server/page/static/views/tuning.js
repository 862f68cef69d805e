// Tunings: start one, watch it, read its report, apply what it recommends and take that back.

import { get, post } from "../api.js";
import { html, useEffect, useState } from "../html.js";
import { timeOf } from "../names.js";
import { useLoad, useSession } from "../session.js";
import { Act, Failed, Table } from "../widgets.js";

const EVERY_MS = 1000;
const LISTED = 12;
const LIVE = ["queued", "running"];

/** @param {{ db: any, name: string, why: string, whyAdmin: string }} props */
export function Tunings({ db, name, why, whyAdmin }) {
  const of = { vector_db_id: db.identifier };
  const { data, error, reload } = useLoad(async (signal) => (why ? { data: [] } : get(`v1/tunings?${new URLSearchParams(of)}`, signal)), [db.identifier, why]);
  const rows = data?.data ?? [];
  const isLive = rows.some((/** @type {any} */ one) => LIVE.includes(one.status));
  useEffect(() => {
    if (!isLive) return undefined;
    const later = setTimeout(reload, EVERY_MS);
    return () => clearTimeout(later);
  }, [data]);
  const start = async () => {
    await post("v1/tunings", { ...of, name });
    reload();
  };
  const [newest, ...others] = rows;
  return html`<section class="card" aria-labelledby="tune-title"><h2 id="tune-title">Tune</h2>
    <p class="quiet">Half of the questions of <bdi>${name}</bdi> choose among about a hundred settings, the other half judges the choice. Nothing changes until you apply it.</p>
    <p class="actions"><${Act} class="primary" why=${why || (isLive ? "A tuning is running." : "")} act=${start}>Tune with these questions<//></p>
    <${Failed} error=${error} />
    ${newest && html`<${Tuning} key=${newest.tuning_id} db=${db} tuning=${newest} whyAdmin=${whyAdmin} reload=${reload} />`}
    ${others.length > 0 && html`<${Earlier} db=${db} tunings=${others} whyAdmin=${whyAdmin} reload=${reload} />`}</section>`;
}

/** @param {{ db: any, tunings: any[], whyAdmin: string, reload: () => void }} props */
function Earlier({ db, tunings, whyAdmin, reload }) {
  const [open, set] = useState(false);
  return html`<details open=${open} onToggle=${(/** @type {any} */ event) => event.target === event.currentTarget && set(event.target.open)}><summary>Earlier tunings (${tunings.length})</summary>
    ${open && tunings.map((one) => html`<${Tuning} key=${one.tuning_id} db=${db} tuning=${one} whyAdmin=${whyAdmin} reload=${reload} />`)}</details>`;
}

/** @param {{ db: any, tuning: any, whyAdmin: string, reload: () => void }} props */
function Tuning({ db, tuning, whyAdmin, reload }) {
  const { refresh, say } = useSession();
  const { tuning_id: id, status, done, total, error, report, applied } = tuning;
  const act = (/** @type {string} */ name) => post(`v1/tunings/${id}/${name}`, { vector_db_id: db.identifier });
  const change = async (/** @type {string} */ name) => {
    await act(name);
    await refresh();
    reload();
    say(name === "apply" ? `Applied: ${report.chosen}.` : `Taken back: ${report.registered}.`);
  };
  return html`<article class="tuning" data-status=${status} aria-label=${`Tuning of ${timeOf(tuning.started_at)}`}>
    <p class="quiet">${timeOf(tuning.started_at)}, with <bdi>${tuning.name}</bdi>${tuning.user ? html`, by <bdi>${tuning.user}</bdi>` : ""}: ${status}</p>
    ${LIVE.includes(status) && html`<p class="actions"><progress max=${total || 1} value=${done} aria-label="Progress of the tuning"></progress> ${total ? `${done} of ${total} steps` : "waiting"} <${Act} act=${() => act("cancel").then(reload)}>Cancel<//></p>`}
    ${error && html`<p class="worse">${error}</p>`}
    ${report && html`<${Report} report=${report}><p class="actions">${applied ? html`<${Act} why=${whyAdmin} act=${() => change("undo")}>Take it back<//>` : html`<${Act} class="primary" why=${whyAdmin} act=${() => change("apply")}>Apply it<//>`} <span class="quiet">${whyAdmin || (applied ? "Applied." : "")}</span></p><//>`}</article>`;
}

/** A report; its children are shown with a recommendation. @param {{ report: any, children?: unknown }} props */
function Report({ report, children }) {
  const [shown, show] = useState(LISTED);
  const rank = (/** @type {any} */ { label }) => [report.chosen, report.registered].indexOf(label) + 1 || 3;
  const both = report.trials.filter((/** @type {any} */ one) => one.held_out).sort((/** @type {any} */ one, /** @type {any} */ other) => rank(one) - rank(other));
  const changes = Object.keys(report.recommended).length > 0;
  return html`<p class=${changes ? "statement better" : "statement"}>${report.statement}</p>
    ${changes && html`<pre tabindex="0" role="group" aria-label="Recommended settings">${JSON.stringify(report.recommended, null, 2)}</pre>${children}`}
    <ul class="quiet">${report.notes.map((/** @type {string} */ note) => html`<li>${note}</li>`)}</ul>
    <${Table} label="Settings that were tried" css="stacks"><caption>nDCG@10: ${report.n_train} questions chose, ${report.n_held_out} judged</caption><thead><tr><th scope="col">Settings</th><th scope="col" class="n">Chose</th><th scope="col" class="n">Judged</th><th scope="col">95% interval</th></tr></thead>
      <tbody class="trials">${both.slice(0, shown).map((/** @type {any} */ one) => html`<tr key=${one.label}><th scope="row" class="wraps">${one.label}${mark(one.label, report)}</th><td class="n" data-label="Chose">${one.train[0].toFixed(3)}</td><td class="n" data-label="Judged">${one.held_out[0].toFixed(3)}</td><td data-label="95% interval"><${Interval} of=${one.held_out} /></td></tr>`)}</tbody><//>
    ${both.length > shown && html`<p><button type="button" onClick=${() => show(both.length)}>Show all ${both.length}</button></p>`}`;
}

/** @param {string} label @param {any} report */
const mark = (label, { chosen, registered }) => [label === registered && " (registered)", label === chosen && chosen !== registered && " (recommended)"].filter(Boolean).join("");

/** A mean on its interval, from 0 to 1. @param {{ of: number[] }} props */
const Interval = ({ of: [mean, low, high] }) => html`<svg class="interval" viewBox="0 0 100 12" width="100" height="12" role="img" aria-label=${`${low.toFixed(3)} to ${high.toFixed(3)}`}><line x1="0" x2="100" y1="6" y2="6" class="axis" /><line x1=${low * 100} x2=${high * 100} y1="6" y2="6" class="range" /><circle cx=${mean * 100} cy="6" r="3" /></svg>`;
