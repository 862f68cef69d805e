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

from http_reference import http_reference
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from python_reference import python_reference

from corral.providers.base.config import RunConfig
from corral.server.app import create_app

ROOT = Path(__file__).parents[2]
SINGLE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "providers/rag/README.md": "rag.md",
}
KINDS = {
    "vector_io": "Vector databases",
    "embedding": "Embedding models",
    "rerank": "Re-rankers",
    "inference": "Language models",
}
_LINK = re.compile(
    r"(?<!!)\[((?:[^\]\n]|\n(?!\n))+)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)"
)
_SECOND_WORD = re.compile(r"^(```\w+) \w+$", re.MULTILINE)
_sources: dict[str, str] = {}  # site path -> path in the repository


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill in the parts of the navigation that follow from the tree."""
    pages = [site for _, site in _elsewhere()]
    providers: list[Any] = ["providers.md"]
    for folder, title in KINDS.items():
        providers.append({title: [p for p in pages if p.startswith(f"providers/{folder}/")]})
    found = {"Providers": providers, "RFCs": [p for p in pages if p.startswith("rfcs/")]}
    for entry in config.nav or []:
        entry.update({name: found[name] for name in entry.keys() & found.keys()})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/ and remember where every page comes from."""
    _sources.update({file.src_uri: f"docs/{file.src_uri}" for file in files})
    for repository_path, site_path in _elsewhere():
        _sources[site_path] = repository_path
        text = (ROOT / repository_path).read_text("utf-8")
        files.append(File.generated(config, site_path, content=text))
    files.append(File.generated(config, "http.md", content=_http_reference()))
    files.append(File.generated(config, "python.md", content=python_reference()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links between files of the repository at the pages made of them.

    A second word after a fence's language tells our tests what a block is; the site knows one.
    """
    markdown = _SECOND_WORD.sub(r"\1", markdown)
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
        # With the folder above: there is an `onnx` for embedding and one for re-ranking.
        path = readme.relative_to(ROOT)
        yield path.as_posix(), f"{path.parent.as_posix()}.md"
    rfcs = {*ROOT.glob("rfcs/*.md")} - {ROOT / "rfcs/0000-template.md"}
    for rfc in sorted(rfcs, key=lambda path: (path.name != "README.md", path.name)):
        name = "index.md" if rfc.name == "README.md" else rfc.name
        yield f"rfcs/{rfc.name}", f"rfcs/{name}"


def _http_reference() -> str:
    with tempfile.TemporaryDirectory() as home:
        return http_reference(create_app(RunConfig(), Path(home)).openapi())
