// Wires the page: events in, requests out.

import { get, hasKey, useKey } from "./api.js";
import { again, ask, clear } from "./ask.js";
import { copy } from "./copy.js";
import { restart, turn, upload, watch } from "./documents.js";
import { element, fill, find, say } from "./elements.js";
import { forget, showJudged } from "./judge.js";
import { choose, load, register } from "./registry.js";
import { asRegistered, found, shown } from "./settings.js";
import { read } from "./stored.js";

const SLOW_MS = 120;
let pending = null;

// Run something; say what was refused, and ask for a key where one is needed.
async function run(work) {
  try {
    await work();
  } catch (error) {
    const keyless = error.status === 401 && !hasKey();
    if (error.status === 401) {
      find("key-form").hidden = false;
      find("key").focus();
    }
    say(keyless ? "This server needs an API key." : error.message, true);
  }
}

async function begin() {
  await load();
  await Promise.all([changed(), reports()]);
}

// Another vector DB is current: nothing of the one before stays.
async function changed() {
  clear();
  restart();
  asRegistered();
  showJudged();
  await watch();
  await again();
}

async function reports() {
  const { data } = await get("reports").catch((error) => {
    if (error.status === 403) return { data: [] }; // they are the operator's
    throw error;
  });
  find("no-reports").hidden = data.length > 0;
  fill(find("reports"), data.map((report) => element("li", {}, element("a", link(report), report.name), ` ${report.created}`)));
}

// A browser sends no key with a link: with one, reports are downloaded instead.
function link(report) {
  const path = `reports/${encodeURIComponent(report.name)}`;
  if (!hasKey()) return { href: path, target: "_blank", rel: "noopener" };
  const fetched = async () => {
    const blob = new Blob([await get(path)], { type: "text/html" });
    element("a", { href: URL.createObjectURL(blob), download: `${report.name}.html` }).click();
  };
  return { href: "#reports-title", onclick: () => run(fetched) };
}

for (const input of find("settings").querySelectorAll("input, select")) {
  shown(input);
  input.addEventListener("input", () => {
    shown(input);
    clearTimeout(pending);
    pending = setTimeout(() => run(again), SLOW_MS);
  });
}

const submits = (id, work) => find(id).addEventListener("submit", (event) => {
  event.preventDefault();
  run(work);
});
submits("ask-form", () => ask(find("ask").value));
submits("register-form", async () => {
  await register(found());
  await changed();
});
submits("key-form", async () => {
  useKey(find("key").value.trim());
  find("key").value = "";
  await begin();
  find("key-form").hidden = true;
  say("");
});
find("db").addEventListener("change", () => run(async () => {
  clear();
  await choose(find("db").value);
  await changed();
}));
find("previous").addEventListener("click", () => run(() => turn(false)));
find("next").addEventListener("click", () => run(() => turn(true)));
find("forget").addEventListener("click", forget);
find("files").addEventListener("change", () => run(async () => {
  await upload([...find("files").files]);
  find("files").value = "";
}));
for (const [name, over] of [["dragover", true], ["dragleave", false], ["drop", false]]) {
  find("drop").addEventListener(name, (event) => {
    event.preventDefault();
    find("drop").classList.toggle("over", over);
    if (name === "drop") run(() => upload([...event.dataTransfer.files]));
  });
}
for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", () => run(async () => {
    await copy(button.dataset.copy);
    say(`Copied as ${button.dataset.copy}.`);
  }));
}
find("ask").value ||= read("question") ?? "";
run(begin);
