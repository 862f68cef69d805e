// Requests to the server. The key lives here, in memory, and nowhere else.

let key = "";

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const hasKey = () => key !== "";

// Headers carry Latin-1 only; a browser would refuse any other key in words of its own.
export function useKey(given) {
  const at = given.search(/[^\x20-\x7e\xa0-\xff]/);
  if (at >= 0) throw new Refused(400, `Character ${at + 1} of the API key is not allowed: a key holds Latin letters, digits and signs. Copy it again.`);
  key = given;
}

export async function send(method, path, body) {
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  const isForm = body instanceof FormData;
  if (body !== undefined && !isForm) headers["content-type"] = "application/json";
  const sent = body === undefined || isForm ? body : JSON.stringify(body);
  const response = await fetch(path, { method, headers, body: sent, credentials: "omit" });
  const text = await response.text();
  let found = null;
  try {
    found = text ? JSON.parse(text) : null;
  } catch {
    found = text;
  }
  if (!response.ok) {
    throw new Refused(response.status, found?.error?.message ?? `The server answered ${response.status}.`);
  }
  return found;
}

export const get = (path) => send("GET", path);
export const post = (path, body) => send("POST", path, body);
export const storePath = (id) => `v1/vector_stores/${encodeURIComponent(id)}`;
