"""Give the documentation site what lies elsewhere in the repository, with working links.

The README becomes the first page; provider READMEs, RFCs and the project's own files get pages; the
HTTP reference is made from the OpenAPI document of the app.
"""

from __future__ import annotations

import posixpath
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from corral.providers.config import RunConfig
from corral.server.app import create_app

ROOT = Path(__file__).parents[2]
SINGLE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "providers/rag/README.md": "rag.md",
}
CONTRACT = (
    "embedding_index",
    "scoring",
    "fusion",
    "rankers",
    "filters",
    "errors",
    "chunks",
    "vector_dbs",
    "rag",
    "provider",
)
_LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
_sources: dict[str, str] = {}  # site path -> path in the repository


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill in the parts of the navigation that follow from the tree."""
    pages: dict[str, list[str]] = {
        "Providers": ["providers.md"]
        + [site for _, site in _elsewhere() if site.startswith("providers/")],
        "RFCs": [site for _, site in _elsewhere() if site.startswith("rfcs/")],
    }
    for entry in config.nav or []:
        for name in entry.keys() & pages.keys():
            found = pages[name]
            entry[name] = sorted(
                found, key=lambda page: ("/" in page and not page.endswith("index.md"), page)
            )
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/ and remember where every page comes from."""
    _sources.update({file.src_uri: f"docs/{file.src_uri}" for file in files})
    for repository_path, site_path in _elsewhere():
        _sources[site_path] = repository_path
        text = (ROOT / repository_path).read_text("utf-8")
        files.append(File.generated(config, site_path, content=text))
    files.append(File.generated(config, "http.md", content=_http_reference()))
    files.append(File.generated(config, "python.md", content=_python_reference()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links between files of the repository at the pages made of them."""
    here = page.file.src_uri
    source = _sources.get(here)
    if source is None:
        return markdown
    pages = {repository_path: site_path for site_path, repository_path in _sources.items()}

    def moved(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        for candidate in (path, f"{path}/README.md"):
            if candidate in pages:
                site = posixpath.relpath(pages[candidate], posixpath.dirname(here) or ".")
                return f"[{text}]({site}{anchor})"
        return f"{text} (`{path}`)" if (ROOT / path).exists() else match[0]

    return _LINK.sub(moved, markdown)


def _elsewhere() -> Iterator[tuple[str, str]]:
    yield from ((path, site) for path, site in SINGLE.items() if (ROOT / path).exists())
    for readme in sorted(ROOT.glob("providers/*/*/README.md")):
        yield readme.relative_to(ROOT).as_posix(), f"providers/{readme.parent.name}.md"
    for rfc in sorted({*ROOT.glob("rfcs/*.md")} - {ROOT / "rfcs/0000-template.md"}):
        name = "index.md" if rfc.name == "README.md" else rfc.name
        yield f"rfcs/{rfc.name}", f"rfcs/{name}"


def _python_reference() -> str:
    modules = "\n\n".join(f"::: corral.api.{name}" for name in CONTRACT)
    return f"# Python reference\n\nThe contract: `corral.api`.\n\n{modules}\n"


def _http_reference() -> str:
    """Return every route with its parameters and bodies, from the app's OpenAPI document."""
    with tempfile.TemporaryDirectory() as home:
        schema = create_app(RunConfig(), Path(home)).openapi()
    parts = ["# HTTP reference\n\nThe running server shows the same, to try out, at `/docs`.\n"]
    for path, methods in schema["paths"].items():
        for method, route in methods.items():
            parts.append(f"## {method.upper()} `{path}`\n\n{route.get('summary', '')}\n")
            parts.append(route.get("description", "") + "\n")
            parts += _body(route, schema)
    return "\n".join(parts)


def _body(route: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    content = route.get("requestBody", {}).get("content", {}).get("application/json", {})
    name = content.get("schema", {}).get("$ref", "").rsplit("/", 1)[-1]
    fields = schema["components"]["schemas"].get(name, {})
    if not fields.get("properties"):
        return
    required = set(fields.get("required", ()))
    yield "| field | default | meaning |\n|---|---|---|"
    for key, value in fields["properties"].items():
        default = "required" if key in required else f"`{value.get('default')}`"
        meaning = " ".join(value.get("description", value.get("title", "")).split())
        yield f"| `{key}` | {default} | {meaning.replace('|', chr(92) + '|')} |"
    yield ""
