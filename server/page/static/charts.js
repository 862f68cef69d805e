// Small charts of the server's metrics: a line for each figure, from looks that the page takes itself.

import { get } from "./api.js";
import { html, useEffect, useState } from "./html.js";

const EVERY_MS = 5000;
const LOOKS = 60;
const WIDTH = 240;
const HEIGHT = 60;

/**
 * The sums of a Prometheus text by name, and by name and one label: `corral_jobs{status="failed"}`.
 * @param {string} text
 * @returns {Record<string, number>}
 */
export function sums(text) {
  /** @type {Record<string, number>} */
  const totals = {};
  for (const line of text.split("\n")) {
    const found = /^([a-z_]+)(?:\{(.*)\})? ([-+.\deE]+)$/.exec(line);
    if (!found) continue;
    const [, name, labels = "", value] = found;
    const own = labels.match(/\w+="(?:[^"\\]|\\.)*"/g) ?? [];
    for (const key of [name, ...own.map((label) => `${name}{${label}}`)]) totals[key] = (totals[key] ?? 0) + Number(value);
  }
  return totals;
}

/** The sum of the figures whose label begins so. @param {Record<string, number>} look @param {string} beginning */
const starting = (look, beginning) => Object.entries(look).reduce((sum, [name, value]) => (name.startsWith(beginning) ? sum + value : sum), 0);

/** @typedef {{ at: number, look: Record<string, number> }} Look */
/** @type {[string, string, (now: Look, before: Look) => number][]} */
const CHARTS = [
  ["Requests per second", "", (now, before) => change(now, before, (look) => look.corral_requests_total ?? 0) / seconds(now, before)],
  ["Failed requests per second (5xx)", "", (now, before) => change(now, before, (look) => starting(look, 'corral_requests_total{status="5')) / seconds(now, before)],
  ["Mean time of a request", "ms", (now, before) => 1000 * change(now, before, (look) => look.corral_request_seconds_sum ?? 0) / Math.max(change(now, before, (look) => look.corral_request_seconds_count ?? 0), 1)],
  ["Jobs queued and running", "", ({ look }) => (look['corral_jobs{status="queued"}'] ?? 0) + (look['corral_jobs{status="running"}'] ?? 0)],
];

/** @param {Look} now @param {Look} before */
const seconds = (now, before) => (now.at - before.at) / 1000;
/** The growth of a counter; a restarted server counts from 0. @param {Look} now @param {Look} before @param {(look: Record<string, number>) => number} of */
const change = (now, before, of) => Math.max(of(now.look) - of(before.look), 0);

/** @param {{ every?: number }} props */
export function Charts({ every = EVERY_MS }) {
  const [looks, set] = useState(/** @type {Look[]} */ ([]));
  const [failed, fail] = useState("");
  useEffect(() => {
    const abort = new AbortController();
    let later = 0;
    const take = async () => {
      try {
        const look = sums(await get("metrics", abort.signal));
        set((/** @type {Look[]} */ before) => [...before, { at: Date.now(), look }].slice(-LOOKS - 1));
        fail("");
      } catch (/** @type {any} */ error) {
        if (!abort.signal.aborted) fail(error.message);
      }
      if (!abort.signal.aborted) later = setTimeout(take, every);
    };
    take();
    return () => {
      abort.abort();
      clearTimeout(later);
    };
  }, []);
  const pairs = looks.slice(1).map((now, at) => /** @type {[Look, Look]} */ ([now, looks[at]]));
  return html`${failed && html`<p class="notice bad" role="alert">${failed}</p>`}
    <div class="charts" data-looks=${looks.length}>${CHARTS.map(([label, unit, of]) => html`<${Chart} key=${label} label=${label} unit=${unit} values=${pairs.map(([now, before]) => of(now, before))} />`)}</div>
    <p class="quiet">Since this page was opened, every ${every / 1000} s. The same figures are at <code>/metrics</code>.</p>`;
}

/** @param {{ label: string, unit: string, values: number[] }} props */
function Chart({ label, unit, values }) {
  const most = Math.max(...values, 0);
  const points = values.map((value, at) => `${WIDTH - (values.length - 1 - at) * (WIDTH / LOOKS)},${HEIGHT - 2 - (most ? value / most : 0) * (HEIGHT - 4)}`);
  if (points.length === 1) points.push(points[0]); // a line without length is drawn as a dot
  const shown = (/** @type {number | undefined} */ value) => (value === undefined ? "-" : `${value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(2)} ${unit}`.trim());
  return html`<figure class="chart"><figcaption>${label} <output>${shown(values.at(-1))}</output></figcaption>
    <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label=${`${label}: now ${shown(values.at(-1))}, at most ${shown(most)}`}><line x1="0" x2=${WIDTH} y1=${HEIGHT - 1} y2=${HEIGHT - 1} class="axis" /><polyline points=${points.join(" ")} class="range" /></svg>
    <span class="quiet">at most ${shown(most)}</span></figure>`;
}
