// Files go up, become jobs, and are watched until they are done.

import { get, post, storePath } from "./api.js";
import { element, fill, find, say } from "./elements.js";
import { current } from "./registry.js";

const EVERY_MS = 700;
let watching = null;

export async function upload(files) {
  if (!current) {
    say("Register a vector DB first.", true);
    return;
  }
  const db = current.identifier;
  for (const file of files) {
    const form = new FormData();
    form.set("purpose", "assistants");
    form.set("file", file, file.name);
    try {
      const stored = await post("v1/files", form);
      await post(`${storePath(db)}/files`, { file_id: stored.id });
    } catch (error) {
      say(`${file.name}: ${error.message}`, true);
    }
    await watch();
  }
}

export async function watch() {
  clearTimeout(watching);
  if (!current) return;
  const db = current.identifier;
  const { data } = await get(`v1/jobs?limit=50&vector_db_id=${encodeURIComponent(db)}`);
  if (db !== current.identifier) return;
  find("jobs").hidden = data.length === 0;
  fill(find("jobs").tBodies[0], data.map(row));
  if (data.some((job) => job.status === "queued" || job.status === "running")) {
    watching = setTimeout(() => watch().catch((error) => say(error.message, true)), EVERY_MS);
  }
}

function row(job) {
  const { characters, characters_total: total, chunks, rate, seconds_left: left } = job.progress;
  const done = job.status === "completed";
  const speed = rate && !done ? ` ${Math.round(rate)}/s${left ? `, ${Math.ceil(left)} s left` : ""}` : "";
  const bar = element("progress", { max: total || 1, value: done ? total || 1 : characters, "aria-label": `Progress of ${job.filename || job.document_id}` });
  const progress = job.status === "failed" ? [job.error_message ?? "", again(job)] : [bar, speed];
  return element("tr", {},
    element("th", { scope: "row" }, job.filename || job.document_id),
    element("td", { class: job.status }, job.status),
    element("td", {}, String(chunks)),
    element("td", {}, ...progress));
}

function again(job) {
  const retry = async () => {
    await post(`v1/jobs/${encodeURIComponent(job.job_id)}/retry`);
    await watch();
  };
  return element("button", { type: "button", onclick: () => retry().catch((error) => say(error.message, true)) }, `Retry ${job.filename || job.document_id}`);
}
