// Marks the words of a text that match a search.

import { html } from "./html.js";

const UNSPACED = "[\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\p{Script=Bopomofo}\\p{Script=Hangul}\\p{Script=Thai}\\p{Script=Lao}\\p{Script=Khmer}\\p{Script=Myanmar}]";
const LETTER = `(?!${UNSPACED})[\\p{L}\\p{M}\\p{N}]`;
const MOST_MARKS = 1000;

/**
 * The text with the first thousand of these words in <mark>. Only whole words match, except in scripts
 * without spaces.
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

/** A pattern for the words, longest first. It is a lookahead, so overlapping matches are all found. @param {string[]} words */
function pattern(words) {
  const joined = new RegExp(UNSPACED, "u");
  const sorted = [...words].sort((one, other) => other.length - one.length).map((word) => {
    const escaped = word.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
    return joined.test(word) ? escaped : `(?<!${LETTER})${escaped}(?!${LETTER})`;
  });
  return new RegExp(`(?=(${sorted.join("|")}))`, "gu");
}
