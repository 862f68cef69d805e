// The query as something to run elsewhere. A key is named by a variable, never written out.

import { hasKey } from "./api.js";
import { ragRequest } from "./ask.js";
import { element } from "./elements.js";

const url = () => new URL("v1/tool-runtime/rag-tool/query", document.baseURI).href;

export function written(form) {
  const body = ragRequest();
  if (form === "json") return JSON.stringify(body, null, 2);
  return form === "curl" ? curl(body) : python(body);
}

// Put the query into the clipboard. Browsers hide theirs from pages that come over plain http.
export async function copy(form) {
  const text = written(form);
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copySelected(text);
  }
}

function copySelected(text) {
  const focused = document.activeElement;
  const area = element("textarea", { readonly: true });
  area.value = text;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  focused?.focus();
  if (!copied) throw new Error("The browser blocked the copy. Allow clipboard access, or open the page over https or on localhost.");
}

function curl(body) {
  const quoted = JSON.stringify(body).replaceAll("'", "'\\''");
  const key = hasKey() ? ' \\\n  -H "Authorization: Bearer $CORRAL_API_KEY"' : "";
  return `curl -sS '${url()}' \\\n  -H 'content-type: application/json'${key} \\\n  -d '${quoted}'`;
}

function python(body) {
  const key = hasKey();
  const headers = key ? ',\n    headers={"Authorization": f"Bearer {os.environ[\'CORRAL_API_KEY\']}"}' : "";
  return `import json\n${key ? "import os\n" : ""}\nimport httpx\n\nbody = json.loads(r"""${JSON.stringify(body).replaceAll('"""', '\\u0022\\u0022\\u0022')}""")\nanswer = httpx.post("${url()}", json=body${headers})\nprint("".join(item["text"] for item in answer.json()["content"] or []))\n`;
}
