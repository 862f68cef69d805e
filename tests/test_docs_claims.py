"""Links, routes, settings and versions that the pages name: all of them exist."""

from __future__ import annotations

import json
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from jsonschema_rs import Draft202012Validator

from corral.providers.base.config import RunConfig
from corral.providers.stack.run_schema import settings_schema
from corral.server.absent import INSTEAD
from corral.server.app import create_app

from .pages import PAGES, ROOT

FOREIGN = {
    "/v1/convert/file": "docling-serve",
    "/v1/nodes": "Weaviate",
    "/v1/openai/v1": "the prefix under which the OpenAI routes are served, too",
    **dict.fromkeys(INSTEAD, "refused with advice"),
}
"""Paths on the pages that are not routes of Corral, and why they are there."""

_CODE = re.compile(r"^( *)```.*?^ *```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_ROUTE = re.compile(r"(?<![\w.:/-])(?:http://127\.0\.0\.1:8321)?(/v1/[\w{}./:~-]*)")
_CURL = re.compile(
    r"curl [^']*?(?::8321|\$URL)(/[\w/-]+)[^']*'content-type: application/json'[^']*'\s*(\{[^']*)'"
)
_POST = re.compile(r"^POST (/\S+)\n(\{.+?)\n```", re.MULTILINE | re.DOTALL)
_SETTING = re.compile(r"`((?:server|rag|answers|files|ingestion|providers)\.[a-z_.]+)(?:: [^`]*)?`")


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as a forge makes them."""
    text = re.sub(
        r"^( *)```.*?^ *```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    made: set[str] = set()
    for heading in re.findall(r"^#{1,6} (.*)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        repeated = sum(
            each == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", each) is not None
            for each in made
        )
        made.add(f"{slug}-{repeated}" if repeated else slug)
    return made


def test_links_lead_somewhere() -> None:
    """A relative link names a file of the repository, and its anchor a heading of that page.

    If this fails: a page moved, or a heading was changed; correct the link.
    """
    wrong = []
    for page in PAGES:
        for link in _LINK.findall(_CODE.sub("", page.read_text("utf-8"))):
            path, _, anchor = unquote(link).partition("#")
            if re.match(r"[a-z]+:", path):
                continue
            target = (page.parent / path).resolve() if path else page
            if not target.exists():
                wrong.append(f"{page.relative_to(ROOT)}: {link}")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target):
                wrong.append(f"{page.relative_to(ROOT)}: {link} has no such heading")
    assert not wrong, "\n".join(wrong)


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the OpenAPI document of the server."""
    made: dict[str, Any] = create_app(RunConfig(), tmp_path_factory.mktemp("home")).openapi()
    return made


@pytest.fixture(scope="module")
def paths(schema: dict[str, Any]) -> list[list[str]]:
    """Return the parts of each route's path."""
    return [path.strip("/").split("/") for path in schema["paths"]]


def fits(named: list[str], parts: list[str]) -> bool:
    """Return True if a path on a page is a route's or begins it; `...` leaves out some parts."""
    if "..." in named:
        at = named.index("...")
        after = named[at + 1 :]
        return fits(named[:at], parts[:at]) and fits(after, parts[len(parts) - len(after) :])
    return len(named) <= len(parts) and all(
        part.startswith("{") or name == part for name, part in zip(named, parts, strict=False)
    )


def test_routes_on_the_pages_exist(paths: list[list[str]]) -> None:
    """Each `/v1/...` on a page is a route of the server, with any names in place of parameters.

    It may be the beginning of several routes, such as `/v1/dify`.

    If this fails: the route was renamed, or never existed.
    """
    wrong = []
    for page in PAGES:
        for match in _ROUTE.finditer(page.read_text("utf-8")):
            path = match[1].rstrip(":" if match[1].endswith("...") else ":./")
            named = path.split("/")[1:]
            if path not in FOREIGN and not any(fits(named, parts) for parts in paths):
                wrong.append(f"{page.relative_to(ROOT)}: {match[0]}")
    assert not wrong, "\n".join(wrong)


def test_bodies_on_the_pages_match_the_routes(schema: dict[str, Any]) -> None:
    """What a page posts, with `curl -d` or below `POST /path`, has the fields of that route's body.

    If this fails: a reader who pastes it gets a 400.
    """
    count, wrong = 0, []
    for page in PAGES:
        text = page.read_text("utf-8")
        for path, body in (*_CURL.findall(text), *_POST.findall(text)):
            if "/qdrant/" in path or ("..." in body and '"..."' not in body):
                continue  # Qdrant's own format; or a part of the body is left out
            post = schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]
            validator = Draft202012Validator({**post["schema"], "components": schema["components"]})
            faults = [
                error.message
                for error in validator.iter_errors(json.JSONDecoder().raw_decode(body)[0])
            ]
            count += 1
            wrong += [f"{page.relative_to(ROOT)}: {path}: {each}" for each in faults]
    assert not wrong, "\n".join(wrong)
    assert count >= 10


def test_settings_on_the_pages_exist() -> None:
    """Each dotted setting of run.yaml, such as `server.port`, has this name.

    If this fails: the setting was renamed; docs/configuration.md lists the names.
    """
    names = set(
        re.findall(
            r"^\| `([\w.\[\]]+)`", (ROOT / "docs/configuration.md").read_text("utf-8"), re.MULTILINE
        )
    )
    sections = {name.rpartition(".")[0] for name in names} | set(settings_schema()["properties"])
    for page in PAGES:
        if page.name != "CHANGELOG.md":
            for name in _SETTING.findall(page.read_text("utf-8")):
                if not name.endswith((".py", ".md", ".jsonl")):  # files
                    assert name.rstrip(".") in names | sections, page


def test_versions_on_the_pages_are_those_of_the_project() -> None:
    """The README names the Pythons that CI tests, and versions of clients that tests run."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    text = " ".join((ROOT / "README.md").read_text("utf-8").split())
    prefix = "Programming Language :: Python :: 3."
    tested = [
        int(each.removeprefix(prefix)) for each in project["classifiers"] if each.startswith(prefix)
    ]
    assert f"Python 3.{min(tested)} to 3.{max(tested)}" in text
    lists = "".join(path.read_text("utf-8") for path in ROOT.glob("tests/clients/*.txt"))
    lists += str(project["optional-dependencies"]["dev"])
    for client, versions in re.findall(r"`(llama-stack-client|ogx-client)` ([\d., and]+\d)", text):
        for version in re.findall(r"\d+\.\d+\.\d+", versions):
            assert f"{client}=={version}" in lists.replace("_", "-")
