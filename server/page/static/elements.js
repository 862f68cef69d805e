// Elements from data. Whatever comes from a document is set as text, never as markup.

export const find = (id) => document.getElementById(id);

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") made.addEventListener("click", value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  fill(made, children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Children are added one by one: a call takes some ten thousand arguments and no more.
export function fill(parent, children) {
  parent.replaceChildren();
  for (const child of children) parent.append(child);
}

// What people call a chunk's document, as the server's document_names.py says it.
export function nameOf({ chunk_id, metadata, chunk_metadata: about }) {
  const said = (name) => (typeof metadata[name] === "string" && metadata[name] ? metadata[name] : null);
  const folderless = (source) => (/^(file:|[/\\]|~\w*[/\\]|[a-z]:[/\\])/i.test(source ?? "") ? source.replace(/[/\\]+$/, "").split(/[/\\]/).pop() : source);
  const file = folderless(said("filename") ?? about?.filename) || folderless(about?.source ?? said("source"));
  const title = said("title");
  const isAddress = /^https?:\/\//i.test(file ?? "");
  const repeats = file && (title === file || title === file.split("/").pop().replace(/(?<=.)\.[^.]*$/, ""));
  const both = title && file && !repeats && !isAddress ? `${title} (${file})` : title;
  return (repeats ? file : both || file) || said("document_id") || about?.document_id || chunk_id;
}

// A link to the page that shows a document, with a chunk marked if one is given.
export function pageLink(text, vectorDB, documentId, chunkId) {
  const named = { vector_db_id: vectorDB, document_id: documentId, chunk_id: chunkId };
  const query = new URLSearchParams(Object.entries(named).filter(([, value]) => value));
  return element("a", { href: `document?${query}${chunkId ? "#passage" : ""}`, target: "_blank", rel: "noopener" }, text);
}

export function say(text, failed = false) {
  find("message").textContent = text;
  find("message").classList.toggle("error", failed);
}

const UNSPACED = "[\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\p{Script=Bopomofo}\\p{Script=Hangul}\\p{Script=Thai}\\p{Script=Lao}\\p{Script=Khmer}\\p{Script=Myanmar}]";
const LETTER = `(?!${UNSPACED})[\\p{L}\\p{M}\\p{N}]`;
const MOST_MARKS = 1000;

// A text with these words in <mark>, the first thousand: each stands between other characters than
// letters, but for scripts without spaces, whose words are found wherever they are.
export function marked(text, words) {
  const made = new DocumentFragment();
  let end = 0;
  for (const [start, stop] of places(text, words)) {
    made.append(text.slice(end, start), element("mark", {}, text.slice(start, stop)));
    end = stop;
  }
  made.append(text.slice(end));
  return made;
}

function places(text, words) {
  const found = [];
  if (words.length === 0) return found;
  for (const { index, 1: word } of text.matchAll(pattern(words))) {
    const last = found.at(-1);
    if (last && index <= last[1]) last[1] = Math.max(last[1], index + word.length);
    else if (found.length < MOST_MARKS) found.push([index, index + word.length]);
    else break;
  }
  return found;
}

// The words, the longest first. It looks ahead only, so pieces that overlap are all found.
function pattern(words) {
  const joined = new RegExp(UNSPACED, "u");
  const sorted = [...words].sort((one, other) => other.length - one.length).map((word) => {
    const escaped = word.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
    return joined.test(word) ? escaped : `(?<!${LETTER})${escaped}(?!${LETTER})`;
  });
  return new RegExp(`(?=(${sorted.join("|")}))`, "gu");
}
