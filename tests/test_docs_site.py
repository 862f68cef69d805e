"""The docs: what they show can be pasted; their site hides no warning and leaves nothing out."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

import pytest

from corral.providers.base.config import DEFAULT_MODELS, RunConfig
from corral.server.app import create_app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]


def _site(name: str) -> ModuleType:
    """Import a module of docs/site, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs/site" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the OpenAPI document of the app."""
    return create_app(RunConfig(), tmp_path_factory.mktemp("home")).openapi()


def test_the_http_reference_has_every_parameter(schema: Any) -> None:
    """Each route's path and query parameters are in the reference, with what they mean."""
    page = _site("http_reference").http_reference(schema)
    for path, methods in schema["paths"].items():
        for method, route in methods.items():
            section = page.partition(f"### {method.upper()} `{path}`\n")[2].partition("\n### ")[0]
            rows = re.findall(r"^\| `(\w+)` \| (?:path|query) \|", section, re.MULTILINE)
            assert rows == [each["name"] for each in route.get("parameters", ())], path


def test_the_http_reference_describes_each_type_it_names(schema: Any) -> None:
    """A link to a type leads to its fields on the same page, nested ones included."""
    page = _site("http_reference").http_reference(schema)
    linked = set(re.findall(r"\]\(#(type-[\w-]+)\)", page))
    assert linked == set(re.findall(r"\{#(type-[\w-]+)\}", page))
    assert "type-ragqueryconfig" in linked
    assert "| `max_tokens_in_context` | integer (>= 1, <= 1000000) | `4096` |" in page


def test_the_python_reference_names_modules_that_are_there() -> None:
    """Each module of the page can be imported, and is on it once.

    If this fails: a module moved; `make docs`, which CI does not run, fails as well.
    """
    modules = _site("python_reference").MODULES
    assert len(modules) == len(set(modules)) > 15
    for name in modules:
        assert importlib.util.find_spec(name) is not None, name


def test_the_site_hides_no_warning() -> None:
    """`make docs` fails on a warning: mkdocs counts none of them under `--quiet`."""
    recipe = re.search(r"^docs:.*\n\t(.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert recipe is not None
    assert "--strict" in recipe[1]
    assert "--quiet" not in recipe[1]


def test_the_bodies_in_the_pages_are_json() -> None:
    """What a page sends with `curl -d`, and its blocks of JSON, parse as they are printed.

    If this fails: a line break within a string, most likely; a reader who pastes it gets a 400.
    """
    for page in PAGES:
        text = page.read_text("utf-8")
        bodies = re.findall(r"-d '\s*(\{.+?\})'", text, re.DOTALL)
        for body in bodies + re.findall(r"```json(?: \w+)?\n([{\[].+?)```", text, re.DOTALL):
            if "..." not in body:  # "..." stands for what is left out
                json.loads(body)


def test_the_pages_register_with_the_model_that_is_there() -> None:
    """A new installation knows one model; an example that names another one is a 404 there."""
    for page in PAGES:
        named = re.findall(r'"?embedding_model"?[:=] ?"([^"]+)"', page.read_text("utf-8"))
        assert set(named) <= {DEFAULT_MODELS["inline::e5"]}, page


def test_the_architecture_names_files_that_are_there() -> None:
    """Every file that docs/architecture.md sends a reader to exists, under its room or by its name.

    If this fails: a file moved; say where it is now.
    """
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    rooms = (ROOT, ROOT / "providers", ROOT / "providers/vector_io", ROOT / "server")
    names = {
        path.name
        for room in ("api", "bench", "providers", "server")
        for path in (ROOT / room).rglob("*.py")
    }
    for path in re.findall(r"`([\w/]+(?:\.py|/))`", page):
        assert path in names or any((room / path).exists() for room in rooms), path


def test_the_names_of_python_in_the_pages_exist() -> None:
    """A dotted name can be imported as it stands.

    If this fails: who pastes it gets an ImportError.
    """
    dotted = re.compile(r"`(corral\.(?:api|providers)(?:\.\w+)+)")
    found = {name for page in PAGES for name in dotted.findall(page.read_text("utf-8"))}
    assert found
    for name in sorted(found):
        resolve_name(name)


def test_the_architecture_answers_where_things_happen() -> None:
    """The table answers with whole paths, so that a reader can open what it names."""
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    answers = page.partition("## Where is ...?")[2]
    for what, path in (
        ("BM25 computed for SQLite, FAISS, Chroma", "providers/vector_io/store/postings.py"),
        ("token budget enforced", "providers/rag/context.py"),
        ("score mapped to [0, 1]", "api/scoring.py"),
        ("HTTP option become a query option", "server/bodies.py"),
    ):
        row = next(line for line in answers.splitlines() if what in line)
        assert f"`{path}`" in row
        assert (ROOT / path).is_file()


def test_the_page_of_settings_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/configuration.md is what the settings' models say.

    If this fails: run `make snapshots` and look at the difference.
    """
    monkeypatch.syspath_prepend(ROOT / "docs/site")
    made = _site("configuration").configuration_page()
    assert (ROOT / "docs/configuration.md").read_text("utf-8") == made
