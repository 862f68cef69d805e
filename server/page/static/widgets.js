// Parts that several views share.

import { hasKey } from "./api.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { told, useSession } from "./session.js";

/** @param {{ title: unknown, children?: unknown, lead?: unknown }} props */
export const Head = ({ title, children, lead }) => html`
  <div class="head"><h1 tabindex="-1" dir="auto">${title}</h1><div class="actions">${children}</div></div>
  ${lead && html`<p class="lead">${lead}</p>`}`;

/** @param {{ error: Error | null }} props */
export const Failed = ({ error }) => (error ? html`<p class="notice bad" role="alert">${told(error)}</p>` : null);

/** A notice that something is not allowed. @param {{ why: string }} props */
export const NotAllowed = ({ why }) => (why ? html`<p class="notice">${why}</p>` : null);

/**
 * A button for an action; it shows errors and cannot be pressed twice. `why`, a reason, disables it.
 * @param {{ act: () => unknown, why?: string, children?: unknown, [name: string]: unknown }} props
 */
export function Act({ act, why = "", children, ...others }) {
  const { say } = useSession();
  const [busy, set] = useState(false);
  const press = async () => {
    if (busy) return;
    set(true);
    try {
      await act();
    } catch (error) {
      say(told(error), true);
    } finally {
      set(false);
    }
  };
  return html`<button type="button" title=${why || undefined} disabled=${Boolean(why)} aria-busy=${busy} onClick=${press} ...${others}>${children}</button>`;
}

/**
 * A button that asks once more before it acts.
 * @param {{ act: () => unknown, why?: string, sure: string, children?: unknown }} props
 */
export function Sure({ act, why, sure, children }) {
  const [asked, set] = useState(false);
  const [shown, before] = [useRef(/** @type {HTMLElement | null} */ (null)), useRef(false)];
  useEffect(() => {
    if (asked !== before.current) shown.current?.querySelector("button")?.focus();
    before.current = asked;
  }, [asked]);
  if (!asked) return html`<span ref=${shown}><${Act} why=${why} act=${() => set(true)} class="danger">${children}<//></span>`;
  const act2 = async () => {
    await act();
    set(false);
  };
  return html`<span class="sure" role="group" aria-label=${sure} ref=${shown}>${sure}
    <${Act} act=${act2} class="danger">Yes<//><button type="button" onClick=${() => set(false)}>No</button></span>`;
}

/** @param {{ label: string, children?: unknown, note?: string }} props */
export const Field = ({ label, children, note }) => html`<label class="field"><span>${label}</span>${children}${note && html`<small>${note}</small>`}</label>`;

/** A table; with the class `stacks`, its rows are cards on narrow screens. @param {{ label: string, css?: string, children?: unknown }} props */
export const Table = ({ label, css, children }) => html`<div class="scroll" role="region" aria-label=${label} tabindex="0"><table class=${css}>${children}</table></div>`;

/** Code in pieces of class and text. @param {{ pieces: [string, string][] }} props */
export const Code = ({ pieces }) => html`<pre class="code" tabindex="0" role="group" aria-label="Code"><code>${pieces.map(([kind, text]) => (kind ? html`<span class="code-${kind}">${text}</span>` : text))}</code></pre>`;

/** The names and values of a record. @param {{ of: [string, unknown][] }} props */
export const Facts = ({ of }) => html`<dl class="facts">${of.map(([name, value]) => html`<dt>${name}</dt><dd dir="auto">${shown(value)}</dd>`)}</dl>`;

/** @param {unknown} value */
function shown(value) {
  if (value === null || value === undefined || value === "") return "-";
  return typeof value === "object" && !("type" in value && "props" in value) ? JSON.stringify(value) : typeof value === "boolean" ? String(value) : value;
}

/**
 * Buttons that copy a request as curl, Python or JSON. They contain a variable instead of the key.
 * @param {{ path: string, body: unknown }} props
 */
export function CopyButtons({ path, body }) {
  const { say } = useSession();
  const forms = { curl: asCurl, Python: asPython, JSON: (/** @type {string} */ _, /** @type {unknown} */ given) => JSON.stringify(given, null, 2) };
  return html`<div class="actions" data-copies=${path}>${Object.entries(forms).map(([name, write]) => html`<${Act} act=${async () => {
    await copy(write(new URL(path, document.baseURI).href, body));
    say(`Copied as ${name}.`);
  }}>Copy as ${name}<//>`)}</div>`;
}

/** @param {string} url @param {unknown} body */
export function asCurl(url, body) {
  const quoted = JSON.stringify(body).replaceAll("'", "'\\''");
  const key = hasKey() ? ' \\\n  -H "Authorization: Bearer $CORRAL_API_KEY"' : "";
  return `curl -sS '${url}' \\\n  -H 'content-type: application/json'${key} \\\n  -d '${quoted}'`;
}

/** @param {string} url @param {unknown} body */
export function asPython(url, body) {
  const key = hasKey();
  const headers = key ? ',\n    headers={"Authorization": f"Bearer {os.environ[\'CORRAL_API_KEY\']}"}' : "";
  const json = JSON.stringify(body).replaceAll('"""', "\\u0022\\u0022\\u0022");
  return `import json\n${key ? "import os\n" : ""}\nimport httpx\n\nbody = json.loads(r"""${json}""")\nanswer = httpx.post("${url}", json=body${headers})\nprint(answer.json())\n`;
}

/** Copy a text to the clipboard. Over plain http, browsers do not offer their own function. @param {string} text */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copySelected(text);
  }
}

/** @param {string} text */
function copySelected(text) {
  const focused = document.activeElement;
  const area = document.createElement("textarea");
  area.readOnly = true;
  area.value = text;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  if (focused instanceof HTMLElement) focused.focus();
  if (!copied) throw new Error("The browser blocked the copy. Allow clipboard access, or open the page over https or on localhost.");
}

/** Save a file. @param {string} name @param {Blob | string} content */
export function download(name, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content]));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
