// Requests to the server. The key is held here in memory, and in session storage only on request.

const STORED = "corral.key";
const BETWEEN_EVENTS = /\r?\n\r?\n/;

let key = sessionKey() ?? "";

export class Refused extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const hasKey = () => key !== "";

/** @returns {string | null} */
function sessionKey() {
  try {
    return sessionStorage.getItem(STORED);
  } catch {
    return null;
  }
}

/**
 * Use a key. Headers are limited to Latin-1; for other keys, the browser would raise an obscure error.
 * @param {string} given
 * @param {boolean} stays true to remember it when this tab is reloaded
 */
export function useKey(given, stays = false) {
  const at = given.search(/[^\x20-\x7e\xa0-\xff]/);
  if (at >= 0) throw new Refused(400, `Character ${at + 1} of the API key is not allowed: a key holds Latin letters, digits and signs. Copy it again.`);
  key = given;
  try {
    if (stays && given) sessionStorage.setItem(STORED, given);
    else sessionStorage.removeItem(STORED);
  } catch {
    // Without session storage, the key is still in memory.
  }
}

/** @returns {Record<string, string>} */
const authorization = () => (key ? { authorization: `Bearer ${key}` } : {});

/**
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body] JSON, or a form
 * @param {AbortSignal} [signal]
 */
async function request(method, path, body, signal) {
  const headers = authorization();
  const isForm = body instanceof FormData;
  if (body !== undefined && !isForm) headers["content-type"] = "application/json";
  const sent = body === undefined || isForm ? body : JSON.stringify(body);
  const response = await fetch(path, { method, headers, body: sent, credentials: "omit", signal });
  if (!response.ok) throw new Refused(response.status, messageOf(await response.text(), response.status));
  return response;
}

/** @param {string} text @param {number} status */
function messageOf(text, status) {
  try {
    return JSON.parse(text).error.message;
  } catch {
    return `The server answered ${status}.`;
  }
}

/**
 * Send a request and return the JSON of its reply; the bytes of a zip file; or else its text.
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function send(method, path, body, signal) {
  const response = await request(method, path, body, signal);
  const type = response.headers.get("content-type") ?? "";
  if (type.startsWith("application/zip")) return response.blob();
  return type.startsWith("application/json") ? response.json() : response.text();
}

/**
 * Return a picture as a data: address, since an <img> would ask for it without the key.
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<string>}
 */
export async function picture(path, signal) {
  const blob = await (await request("GET", path, undefined, signal)).blob();
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => done(String(reader.result)));
    reader.addEventListener("error", () => failed(reader.error));
    reader.readAsDataURL(blob);
  });
}

/** @param {string} path @param {AbortSignal} [signal] */
export const get = (path, signal) => send("GET", path, undefined, signal);
/** @param {string} path @param {unknown} [body] @param {AbortSignal} [signal] */
export const post = (path, body, signal) => send("POST", path, body, signal);
/** @param {string} path */
export const remove = (path) => send("DELETE", path);

/** @param {string} id */
export const dbPath = (id) => `v1/vector-dbs/${encodeURIComponent(id)}`;
/** @param {string} id */
export const storePath = (id) => `v1/vector_stores/${encodeURIComponent(id)}`;

/**
 * Yield the events of a stream as they arrive.
 * @param {string} path
 * @param {unknown} body
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<any>}
 */
export async function* stream(path, body, signal) {
  const response = await request("POST", path, body, signal);
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { done, value } = await reader.read();
    waiting += value ?? "";
    const events = waiting.split(BETWEEN_EVENTS);
    waiting = done ? "" : events.pop() ?? "";
    for (const event of events) {
      const data = event.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart()).join("\n");
      if (data && data !== "[DONE]") yield JSON.parse(data);
    }
    if (done) return;
  }
}

/**
 * Send a form and report the progress of the upload, which `fetch` cannot.
 * @param {string} path
 * @param {FormData} form
 * @param {(share: number) => void} progress
 * @returns {Promise<any>}
 */
export function upload(path, form, progress) {
  return new Promise((done, failed) => {
    const sending = new XMLHttpRequest();
    sending.open("POST", path);
    for (const [name, value] of Object.entries(authorization())) sending.setRequestHeader(name, value);
    sending.upload.addEventListener("progress", (event) => progress(event.total ? event.loaded / event.total : 0));
    sending.addEventListener("error", () => failed(new Refused(0, "The connection broke.")));
    sending.addEventListener("load", () => {
      if (sending.status === 200) done(JSON.parse(sending.responseText));
      else failed(new Refused(sending.status, messageOf(sending.responseText, sending.status)));
    });
    sending.send(form);
  });
}
