// Elements from data. Whatever comes from a document is set as text, never as markup.

export const find = (id) => document.getElementById(id);

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") made.addEventListener("click", value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function fill(parent, children) {
  parent.replaceChildren(...children);
}

export function say(text, failed = false) {
  find("message").textContent = text;
  find("message").classList.toggle("error", failed);
}

const WORD = /[\p{L}\p{M}\p{N}]+/gu;
const JOINED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u;

// A text with its matched words in <mark>. Terms are stems: a word matches if it begins with one.
// Terms of scripts without spaces are pieces of a text, found wherever they are.
export function marked(text, terms) {
  const stems = terms.filter((term) => !JOINED.test(term));
  const pieces = terms.filter((term) => JOINED.test(term));
  const spans = [];
  for (const match of text.matchAll(WORD)) {
    const word = match[0].normalize("NFKC").toLowerCase();
    if (stems.some((stem) => word.startsWith(stem))) spans.push([match.index, match.index + match[0].length]);
  }
  for (const piece of pieces) {
    for (let at = text.indexOf(piece); at >= 0; at = text.indexOf(piece, at + 1)) spans.push([at, at + piece.length]);
  }
  spans.sort((one, other) => one[0] - other[0]);
  const made = [];
  let end = 0;
  for (const [start, stop] of spans) {
    if (stop <= end) continue;
    const from = Math.max(start, end);
    made.push(text.slice(end, from), element("mark", {}, text.slice(from, stop)));
    end = stop;
  }
  return [...made, text.slice(end)];
}
