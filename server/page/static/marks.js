// Marks the words of a text that a search has matched.

import { html } from "./html.js";

const UNSPACED = "[\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\p{Script=Bopomofo}\\p{Script=Hangul}\\p{Script=Thai}\\p{Script=Lao}\\p{Script=Khmer}\\p{Script=Myanmar}]";
const LETTER = `(?!${UNSPACED})[\\p{L}\\p{M}\\p{N}]`;
const MOST_MARKS = 1000;

/**
 * The text with these words in <mark>, the first thousand: each stands between other characters than
 * letters, but for scripts without spaces, whose words are found wherever they are.
 * @param {string} text
 * @param {string[]} words
 */
export function marked(text, words) {
  const parts = [];
  let end = 0;
  for (const [start, stop] of places(text, words)) {
    parts.push(text.slice(end, start), html`<mark>${text.slice(start, stop)}</mark>`);
    end = stop;
  }
  parts.push(text.slice(end));
  return parts;
}

/** @param {string} text @param {string[]} words */
function places(text, words) {
  /** @type {[number, number][]} */
  const found = [];
  if (words.length === 0) return found;
  for (const { index = 0, 1: word } of text.matchAll(pattern(words))) {
    const last = found.at(-1);
    if (last && index <= last[1]) last[1] = Math.max(last[1], index + word.length);
    else if (found.length < MOST_MARKS) found.push([index, index + word.length]);
    else break;
  }
  return found;
}

/** The words, the longest first. It looks ahead only, so pieces that overlap are all found. @param {string[]} words */
function pattern(words) {
  const joined = new RegExp(UNSPACED, "u");
  const sorted = [...words].sort((one, other) => other.length - one.length).map((word) => {
    const escaped = word.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
    return joined.test(word) ? escaped : `(?<!${LETTER})${escaped}(?!${LETTER})`;
  });
  return new RegExp(`(?=(${sorted.join("|")}))`, "gu");
}
