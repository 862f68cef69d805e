// The documents of the vector DB; files go up, become jobs, and are watched until they are done.

import { get, post, storePath } from "./api.js";
import { element, fill, find, pageLink, say } from "./elements.js";
import { current } from "./registry.js";

const EVERY_MS = 700;
const PAGE_SIZE = 25;
let watching = null;
let waiting = new Set(); // ids of the jobs that were not done when they were shown last
let pages = [""]; // after which document each page begins, up to the current one
let following = ""; // the same for the next page

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

// Show the jobs that are not done, and the documents.
export async function watch() {
  await showJobs();
  await list();
}

// Show the jobs until they have ended; when one has, its document is listed.
async function showJobs() {
  clearTimeout(watching);
  if (!current) return;
  const db = current.identifier;
  const { data, has_more: more } = await get(`v1/jobs?limit=50&status=queued&status=running&status=failed&vector_db_id=${encodeURIComponent(db)}`);
  if (db !== current.identifier) return;
  find("jobs").hidden = data.length === 0;
  find("jobs").caption.textContent = more ? "In progress or failed, the newest 50" : "In progress or failed";
  fill(find("jobs").tBodies[0], data.map(row));
  const working = new Set(data.filter((job) => job.status !== "failed").map((job) => job.job_id));
  const ended = [...waiting].some((id) => !working.has(id));
  waiting = working;
  if (working.size > 0) {
    const later = () => showJobs().catch((error) => say(error.message, true));
    watching = setTimeout(later, EVERY_MS);
  }
  if (ended) await list();
}

// Begin at the first page of documents; another vector DB is current.
export function restart() {
  pages = [""];
  waiting = new Set();
  for (const id of ["documents", "paging", "documents-none"]) find(id).hidden = true;
}

export async function turn(forward) {
  if (forward) pages.push(following);
  else pages.pop();
  await list();
}

// Show the current page of documents.
async function list() {
  if (!current) return;
  const [db, after] = [current.identifier, pages.at(-1)];
  const path = `v1/vector-dbs/${encodeURIComponent(db)}/documents?names=true&limit=${PAGE_SIZE}&after=${encodeURIComponent(after)}`;
  const { data, has_more: more, last_id: last } = await get(path);
  if (db !== current.identifier || after !== pages.at(-1)) return;
  if (data.length === 0 && pages.length > 1) { // they were deleted meanwhile
    await turn(false);
    return;
  }
  following = last;
  find("documents").hidden = data.length === 0;
  find("documents-none").hidden = data.length > 0;
  fill(find("documents").tBodies[0], data.map((one) => element("tr", {},
    element("th", { scope: "row" }, pageLink(one.name ?? one.document_id, db, one.document_id)),
    element("td", {}, String(one.chunk_count)))));
  const first = (pages.length - 1) * PAGE_SIZE;
  find("paging").hidden = pages.length === 1 && !more;
  find("previous").disabled = pages.length === 1;
  find("next").disabled = !more;
  find("listed").textContent = `Documents ${first + 1} to ${first + data.length}`;
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
