// What is known of a document: its attributes and who may read it, with forms to change both.

import { send } from "../api.js";
import { html, useState } from "../html.js";
import { placeOf } from "../names.js";
import { useSession } from "../session.js";
import { Act, Facts, Field, NotAllowed } from "../widgets.js";

const SET_BY_SERVER = new Set(["document_id", "file_id", "filename", "title", "part_of", "parts"]);

/** @param {{ path: string, chunk: any, metadata: Record<string, unknown>, why: string, done: () => void }} props */
export function About({ path, chunk, metadata, why, done }) {
  const attributes = Object.entries(metadata).filter(([name]) => !SET_BY_SERVER.has(name));
  return html`<h2>Attributes</h2><${Facts} of=${[["place of the first chunk", placeOf(chunk.chunk_metadata)], ...attributes]} />
    ${path && html`<${NotAllowed} why=${why} /><${Attributes} path=${path} given=${Object.fromEntries(attributes)} why=${why} done=${done} /><${Readers} path=${path} given=${chunk.acl ?? []} why=${why} done=${done} />`}`;
}

/** @param {{ path: string, given: Record<string, unknown>, why: string, done: () => void }} props */
function Attributes({ path, given, why, done }) {
  const { say } = useSession();
  const [text, type] = useState(JSON.stringify(given, null, 2));
  const save = async () => {
    await send("PATCH", path, { attributes: parsed(text) });
    say("The attributes are changed.");
    done();
  };
  return html`<section class="card"><h2>Change the attributes</h2><${Field} label="As JSON" note="Questions can be filtered by them. The text is not embedded again."><textarea id="attributes" rows="6" spellcheck="false" value=${text} disabled=${Boolean(why)} onInput=${(/** @type {any} */ event) => type(event.target.value)}></textarea><//><p><${Act} why=${why} act=${save}>Save the attributes<//></p></section>`;
}

/** @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (/** @type {any} */ error) {
    throw new Error(`The attributes are not JSON: ${error.message}`);
  }
}

/** @param {{ path: string, given: string[], why: string, done: () => void }} props */
function Readers({ path, given, why, done }) {
  const { say } = useSession();
  const [acl, type] = useState(given.join("\n"));
  const permit = async () => {
    const tokens = acl.split(/\s+/).filter(Boolean);
    await send("PATCH", path, { acl: tokens.length ? tokens : null });
    say("The permissions are changed.");
    done();
  };
  return html`<section class="card"><h2>Who may read it</h2><${Field} label="Tokens, one a line" note="Such as group:sales. Empty: as the vector DB's default_acl says."><textarea id="acl" rows="3" value=${acl} disabled=${Boolean(why)} onInput=${(/** @type {any} */ event) => type(event.target.value)}></textarea><//><p><${Act} why=${why} act=${permit}>Save the permissions<//></p></section>`;
}
