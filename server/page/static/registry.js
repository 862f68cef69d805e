// Vector DBs: which there are, what one is registered with, and how to register another.

import { get, post } from "./api.js";
import { element, fill, find, say } from "./elements.js";
import { read, write } from "./stored.js";

// Fields of a registration that are no settings.
const HIDDEN = new Set(["identifier", "tenant", "provider_resource_id", "type", "vector_db_name", "installation", "created_at", "rebuilt_at", "fingerprint"]);

export let current = null;
let providers = [];

// The provider of the current vector DB; undefined where it is no longer configured.
export const provider = () => providers.find((one) => one.provider_id === current?.provider_id);

export async function load(chosen = read("vector-db")) {
  const [listed, configured, models] = await Promise.all([get("v1/vector-dbs"), get("v1/providers"), get("v1/models")]);
  const dbs = listed.data;
  fill(find("db"), dbs.map((db) => element("option", { value: db.identifier }, db.identifier)));
  providers = configured.data.filter((one) => one.kind === "vector_io");
  fill(choice("provider_id"), providers.map((one) => element("option", { value: one.provider_id }, `${one.provider_id} (${one.provider_type})`)));
  fill(choice("embedding_model"), models.data.map((model) => option(model)));
  find("db-none").hidden = dbs.length > 0;
  find("register").open = dbs.length === 0;
  const wanted = dbs.find((db) => db.identifier === chosen) ?? dbs[0] ?? null;
  if (wanted) find("db").value = wanted.identifier;
  show(wanted);
}

function option(model) {
  const id = model.identifier ?? model.id;
  return element("option", { value: id, selected: model.metadata?.default ?? false }, id);
}

const choice = (name) => find("register-form").elements[name];

function show(db) {
  current = db;
  find("db-details").hidden = db === null;
  if (db === null) return;
  const said = (value) => (typeof value === "object" && value !== null ? JSON.stringify(value) : String(value));
  const settings = Object.entries(db).filter(([name, value]) => !HIDDEN.has(name) && value !== null);
  fill(find("db-settings"), settings.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, said(value))]));
}

// Show the vector DB that is selected; a reply that comes after another was selected is dropped.
export async function choose(id) {
  try {
    const db = await get(`v1/vector-dbs/${encodeURIComponent(id)}`);
    if (find("db").value !== id) return;
    show(db);
    write("vector-db", id);
  } catch (error) {
    if (find("db").value !== id) return;
    find("db").value = current?.identifier ?? "";
    throw error;
  }
}

export async function register(found) {
  const fields = find("register-form").elements;
  const body = Object.fromEntries(["vector_db_id", "provider_id", "embedding_model", "language"].map((name) => [name, fields[name].value]));
  const made = await post("v1/vector-dbs", fields.found.checked ? { ...body, ...found } : body);
  say(`${made.identifier} is registered.`);
  write("vector-db", made.identifier);
  await load(made.identifier);
}
