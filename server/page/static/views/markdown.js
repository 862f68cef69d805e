// Markdown as elements. HTML stays text, pictures are shown as their names and not fetched, and links
// lead to http, https and mail addresses only.

import { createContext, html, useContext } from "../html.js";
import { lexer } from "../vendor/marked.js";
import { Code } from "../widgets.js";

/** Code blocks in colored pieces, by their text. @type {any} */
const Colored = createContext(new Map());

/** @param {{ text: string, codeBlocks?: [string, string][][] }} props */
export function Markdown({ text, codeBlocks = [] }) {
  const colored = new Map(codeBlocks.map((pieces) => [pieces.map(([, piece]) => piece).join(""), pieces]));
  return html`<${Colored.Provider} value=${colored}><div class="markdown" dir="auto">${blocks(lexer(text))}</div><//>`;
}

/** @param {{ text: string }} props */
const CodeBlock = ({ text }) => html`<${Code} pieces=${useContext(Colored).get(text) ?? [["", text]]} />`;

/** @param {any[]} tokens */
const blocks = (tokens) => tokens.map(block);

/** @param {any} token */
function block(token) {
  switch (token.type) {
    case "space": return null;
    case "heading": return html`<p class="heading h${token.depth}">${inline(token.tokens)}</p>`;
    case "paragraph": return html`<p>${inline(token.tokens)}</p>`;
    case "blockquote": return html`<blockquote>${blocks(token.tokens)}</blockquote>`;
    case "hr": return html`<hr />`;
    case "code": return html`<${CodeBlock} text=${token.text} />`;
    case "list": {
      const items = token.items.map((/** @type {any} */ item) => html`<li>${blocks(item.tokens)}</li>`);
      return token.ordered ? html`<ol start=${token.start || 1}>${items}</ol>` : html`<ul>${items}</ul>`;
    }
    case "table": return html`<div class="scroll" role="region" tabindex="0" aria-label="Table"><table><thead><tr>${token.header.map((/** @type {any} */ cell) => html`<th scope="col">${inline(cell.tokens)}</th>`)}</tr></thead>
      <tbody>${token.rows.map((/** @type {any[]} */ row) => html`<tr>${row.map((cell) => html`<td class="wraps">${inline(cell.tokens)}</td>`)}</tr>`)}</tbody></table></div>`;
    case "text": return token.tokens ? inline(token.tokens) : token.text;
    default: return html`<p>${token.raw}</p>`;
  }
}

/** @param {any[]} tokens */
const inline = (tokens) => tokens.map(span);

/** @param {any} token */
function span(token) {
  switch (token.type) {
    case "strong": return html`<strong>${inline(token.tokens)}</strong>`;
    case "em": return html`<em>${inline(token.tokens)}</em>`;
    case "del": return html`<del>${inline(token.tokens)}</del>`;
    case "codespan": return html`<code>${token.text}</code>`;
    case "br": return html`<br />`;
    case "link": return link(token);
    case "image": return html`<span class="quiet">[picture${token.text ? `: ${token.text}` : ""}]</span>`;
    case "escape":
    case "text": return token.tokens ? inline(token.tokens) : token.text;
    default: return token.raw;
  }
}

/** @param {any} token */
function link(token) {
  if (!/^(https?:\/\/|mailto:)/i.test(token.href)) return inline(token.tokens);
  return html`<a href=${token.href} target="_blank" rel="noopener noreferrer" title=${token.href}>${inline(token.tokens)}</a>`;
}
