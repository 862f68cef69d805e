// Display names of documents and of places in them.

/** The name of a document, by the rules of the server's document_names.py. @param {any} chunk of the document */
export function nameOf({ chunk_id, metadata, chunk_metadata: about }) {
  const text = (/** @type {string} */ name) => (typeof metadata[name] === "string" && metadata[name] ? metadata[name] : null);
  const folderless = (/** @type {string | undefined} */ source) => (/^(file:|[/\\]|~\w*[/\\]|[a-z]:[/\\])/i.test(source ?? "") ? source?.replace(/[/\\]+$/, "").split(/[/\\]/).pop() : source);
  const file = folderless(text("filename") ?? about?.filename) || folderless(about?.source ?? text("source"));
  const title = text("title");
  const isAddress = /^https?:\/\//i.test(file ?? "");
  const repeats = file && (title === file || title === file.split("/").pop()?.replace(/(?<=.)\.[^.]*$/, ""));
  const both = title && file && !repeats && !isAddress ? `${title} (${file})` : title;
  return (repeats ? file : both || file) || documentOf({ metadata, chunk_metadata: about }) || chunk_id;
}

/** @param {any} chunk @returns {string} the id of its document, "" without one */
export const documentOf = ({ metadata, chunk_metadata: about }) => metadata.document_id ?? about?.document_id ?? "";

/** @param {any} about the record of a chunk, or a citation @returns {string} its page, lines, rows or cells */
export function placeOf(about) {
  if (about?.page) return `page ${about.page}`;
  const unit = ["line", "row", "cell"].find((each) => about?.[`${each}_start`]);
  if (!unit) return "";
  const [first, last] = [about[`${unit}_start`], about[`${unit}_end`]];
  return last && last !== first ? `${unit}s ${first}-${last}` : `${unit} ${first}`;
}

/** @param {any} chunk @returns {string} its headings and place, with separators */
export function wayTo(chunk) {
  const headings = chunk.chunk_metadata?.heading_path ?? [];
  const others = headings[0] === chunk.metadata.title ? headings.slice(1) : headings;
  return [...others, placeOf(chunk.chunk_metadata)].filter(Boolean).join(" › ");
}

/** @param {number | null | undefined} bytes */
export function sizeOf(bytes) {
  if (bytes === null || bytes === undefined) return "";
  const units = ["B", "KB", "MB", "GB", "TB"];
  const power = bytes > 0 ? Math.min(Math.floor(Math.log10(bytes) / 3), units.length - 1) : 0;
  return `${(bytes / 1000 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
}

/** @param {number} seconds since 1970 */
export const timeOf = (seconds) => new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });

/** @param {number} number @param {string} one */
export const counted = (number, one) => `${number.toLocaleString()} ${one}${number === 1 ? "" : "s"}`;
