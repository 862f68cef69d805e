"""The house stands as it is drawn: imports point down, folders are alike, documents complete."""

from __future__ import annotations

import ast
import graphlib
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import provider_matrix
import pytest

from corral.providers.stack.registry import provider_specs
from corral.providers.state.tables import METADATA

ROOT = Path(__file__).parent.parent
PRODUCT = ("api", "providers", "server", "bench")
FLOORS = {room: floor for floor, room in enumerate((*PRODUCT, "lab"))}
SHARED = {"vector_io", "embedding", "rerank", "rag", "ingestion", "text"}
"""Folders of providers/ whose own modules belong to all providers of the kind."""


READ = (ast.Import, ast.ImportFrom, ast.Call)
"""What these tests look at in a file."""


@cache
def nodes(room: str) -> dict[Path, list[ast.Import | ast.ImportFrom | ast.Call]]:
    """Return the imports and calls of each file of a room, in the order of their paths."""
    return {
        path: [n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, READ)]
        for path in sorted((ROOT / room).rglob("*.py"))
    }


def all_nodes() -> dict[Path, list[ast.Import | ast.ImportFrom | ast.Call]]:
    """Return the imports and calls of each file of all rooms."""
    return {path: found for room in FLOORS for path, found in nodes(room).items()}


def names_of(node: ast.AST) -> list[str]:
    """Return the modules that a node imports from."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []


def imports() -> Iterator[tuple[Path, str]]:
    """Yield (file, imported module of ours) for every import in the rooms."""
    for path, found in all_nodes().items():
        for node in found:
            yield from ((path, name) for name in names_of(node) if name.startswith("corral."))


def test_imports_point_down() -> None:
    """A room imports those below it, never one above: api < providers < server < bench < lab."""
    for path, name in imports():
        room, imported = path.relative_to(ROOT).parts[0], name.split(".")[1]
        assert FLOORS[imported] <= FLOORS[room], f"{path}: {name}"


def test_the_product_imports_nothing_that_is_not_installed() -> None:
    """No file of the package imports lab/, tests/, examples/ or an adapter in integrations/.

    If this fails: the package works in a clone and not where it is installed. Move what both need
    into the package.
    """
    outside = {"lab", "tests", "examples", "integrations"}
    outside |= {path.stem for path in ROOT.glob("integrations/*/*.py")}
    for room in PRODUCT:
        for path, found in nodes(room).items():
            for node in found:
                assert not {name.split(".")[0] for name in names_of(node)} & outside, path


def test_no_circle_of_imports() -> None:
    """No module imports itself by way of others; late and TYPE_CHECKING imports count too.

    If this fails: the error names the circle. Move what both modules need into one below them, or
    name what one needs of the other in a protocol.
    """
    graphlib.TopologicalSorter(imported_modules()).prepare()


def imported_modules() -> dict[str, set[str]]:
    """Return by module of ours the modules of ours that it imports, wherever in the file."""
    files = all_nodes()
    dotted = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files}
    modules = {f"corral.{name.removesuffix('.__init__')}": path for path, name in dotted.items()}
    found: dict[str, set[str]] = {}
    for module, path in modules.items():
        names = set()
        for node in files[path]:
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                parts = {f"{node.module}.{alias.name}" for alias in node.names}
                names |= parts & modules.keys() or {node.module}
        found[module] = names & modules.keys()
    return found


def test_no_circle_of_folders() -> None:
    """The folders of providers/ import each other in one direction, and base/ imports none.

    If this fails: the error names the folders. Move what both need into the lower one, or pass it
    in from above.
    """
    folders: dict[str, set[str]] = {}
    for path, name in imports():
        room, folder, *rest = path.relative_to(ROOT).parts
        other = name.split(".")[1:3]
        if room == "providers" and rest and other[0] == room and len(other) > 1:
            folders.setdefault(folder, set()).add(other[1])
    others = {folder: names - {folder} for folder, names in folders.items()}
    assert others["base"] <= {"concurrency"}
    assert "ingestion" not in others["rag"], "the RAG tool only asks"
    graphlib.TopologicalSorter(others).prepare()


def test_a_provider_never_imports_a_sibling() -> None:
    """Providers share the modules and folders beside theirs, not each other's."""
    folders = {
        path.parent.relative_to(ROOT).parts: path.parent
        for path in ROOT.glob("providers/*/[!_]*/README.md")
    }
    for path, name in imports():
        parts = path.relative_to(ROOT).parts[:3]
        other = tuple(name.split(".")[1:4])
        if parts in folders and other in folders:
            assert other == parts, f"{path}: {name}"


def test_the_contract_does_no_io_and_knows_no_engine() -> None:
    """api/ imports the standard library with its back ports, numpy and pydantic.

    Only its test suite imports pytest.
    """
    allowed = {*sys.stdlib_module_names, "typing_extensions", "numpy", "pydantic", "corral"}
    for path, found in nodes("api").items():
        extra = {"pytest"} if "testing" in path.parts else set()
        for node in found:
            for name in names_of(node):
                assert name.split(".")[0] in allowed | extra, f"{path}: {name}"


def test_nothing_deserializes_into_code() -> None:
    """No pickle, no marshal, no eval or exec, no unsafe YAML, and numpy loads no objects.

    If this fails: stored or received data could run code (CVE-2024-50050 was a pickle).
    """
    forbidden = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
    for path, found in all_nodes().items():
        for node in found:
            if isinstance(node, ast.Import):
                assert not forbidden & {alias.name for alias in node.names}, path
            elif isinstance(node, ast.ImportFrom):
                assert node.module not in forbidden, path
            else:
                called = ast.unparse(node.func)
                assert called not in {"eval", "exec", "yaml.load", "yaml.unsafe_load"}, path
                if called == "np.load":
                    options = {k.arg: ast.unparse(k.value) for k in node.keywords}
                    assert options.get("allow_pickle") == "False", path


def test_defaults_of_models_are_given_by_name() -> None:
    """`Field(default=...)`: without pydantic's plugin, a type checker takes no other for one.

    If this fails: a user's mypy misses arguments that have a default.
    """
    for room in ("api", "providers", "server"):
        for path, found in nodes(room).items():
            for node in found:
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Field":
                    assert not node.args, f"{path}:{node.lineno}"


def test_every_provider_folder_holds_the_same_files() -> None:
    """SPEC in __init__.py, settings in config.py, a README: who has seen one has seen all."""
    for spec in provider_specs().values():
        if not spec.config.startswith("corral."):
            continue
        folder = ROOT.joinpath(*spec.config.split(":")[0].split(".")[1:-1])
        assert {"__init__.py", "config.py", "README.md"} <= {p.name for p in folder.iterdir()}


COMMON = {"__init__.py", "config.py", "provider.py", "engine.py", "client.py", "records.py"}
COMMON |= {"filters.py", "keyword.py", "keyword", "README.md", "__pycache__"}
"""Names that mean the same in every engine's folder; an engine may lack what it does not need."""


ENGINES = [
    "chroma",
    "faiss",
    "memory",
    "milvus",
    "opensearch",
    "pgvector",
    "qdrant",
    "sqlite",
    "weaviate",
]


@pytest.mark.parametrize("engine", ENGINES)
def test_engine_folders_have_the_same_shape(engine: str) -> None:
    """Beside the common files an engine has at most two modules or folders of its own.

    If this fails: put the code into the file whose meaning it has; someone who has seen one engine
    should find everything in the next.
    """
    names = {path.name for path in (ROOT / "providers" / "vector_io" / engine).iterdir()}
    assert {"__init__.py", "config.py", "provider.py", "README.md"} <= names
    assert len(names - COMMON) <= 2, sorted(names - COMMON)


OWN_FILES = {
    "chroma": {"search.py"},
    "pgvector": {"search"},
    "qdrant": {"edge"},
}
"""What the folder of a remote engine holds beside the files in `COMMON`."""

SEARCHERS = {"chroma": "search.py", "qdrant": "edge"}
"""The searcher of an engine that also runs in this process: a module or a folder."""

MAX_SEARCHER_LINES = 600
MAX_LINES = {
    "chroma": 1522,
    "milvus": 1889,
    "opensearch": 1400,
    "pgvector": 3486,  # grew by sorted pages of documents, which PostgreSQL groups
    "qdrant": 1568,
    "weaviate": 1441,
}
"""Lines of a remote engine without its searcher. They may only become fewer, down to 1,400; to
2,700 for pgvector."""


def lines_of(place: Path) -> int:
    """Return the number of lines of a module, or of the modules of a folder."""
    modules = [place] if place.is_file() else sorted(place.rglob("*.py"))
    return sum(len(path.read_text("utf-8").splitlines()) for path in modules)


@pytest.mark.parametrize("engine", MAX_LINES)
def test_remote_engines_hold_the_same_files_and_stay_small(engine: str) -> None:
    """A remote engine has all common files, and neither it nor its searcher grows.

    If this fails: move what other engines need, too, to kit/. Write fewer lines into `MAX_LINES`,
    and a file that went into `OWN_FILES`.
    """
    folder = ROOT / "providers" / "vector_io" / engine
    names = {path.name for path in folder.iterdir()}
    common = {"engine.py", "client.py", "records.py"}
    assert common <= names
    assert names & {"keyword.py", "keyword"}
    assert names - COMMON == OWN_FILES.get(engine, set())
    searcher = lines_of(folder / SEARCHERS[engine]) if engine in SEARCHERS else 0
    assert searcher <= MAX_SEARCHER_LINES
    assert lines_of(folder) - searcher <= MAX_LINES[engine]


def classes() -> dict[str, list[str]]:
    """Return the names of the base classes of each class of the product, by its name."""
    return {
        node.name: [ast.unparse(base) for base in node.bases]
        for room in FLOORS
        for path in sorted((ROOT / room).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    }


def test_an_index_has_an_engine() -> None:
    """`EngineIndex` alone implements `EmbeddingIndex`, and nothing is derived from it or an engine.

    If this fails: what the subclass adds belongs into the engine, or into one that wraps it.
    """
    bases = classes()
    implementing = [name for name, of in bases.items() if "EmbeddingIndex" in of]
    assert implementing == ["EngineIndex"]
    engines = {name for name, of in bases.items() if "Engine" in of}
    assert len(engines) >= 8
    for name, of in bases.items():
        assert not {"EngineIndex", *engines} & set(of), f"{name} is derived from {of}"
        assert "Engine" not in of or of == ["Engine"], name


CREATED = re.compile(
    r"CREATE (?:VIRTUAL |TEMP |UNLOGGED )*TABLE (?:IF NOT EXISTS )?(?:temp\.)?(\w+)"
)
NAMED = re.compile(r"(\w+)(?:\s*\([^)]*\))? AS (?:NOT )?(?:MATERIALIZED )?\(")
READ_OR_WRITTEN = re.compile(
    r"\b(?:FROM|JOIN|INTO|UPDATE)\s+(?:temp\.|main\.)?([a-z_]\w*)(?!\w*[\w(])"
)
CATALOGS = re.compile(r"pg_\w+|sqlite_(?:master|sequence)|lexical_docsize")
"""Tables that SQLite, FTS5 and PostgreSQL document."""


def sql_texts() -> Iterator[str]:
    """Yield the literal parts of each string of the product that reads as SQL."""
    for room in PRODUCT:
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                parts = node.values if isinstance(node, ast.JoinedStr) else [node]
                text = "{}".join(
                    part.value
                    for part in parts
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                )
                if re.search(r"\b(?:SELECT|INSERT INTO|UPDATE \w+ SET|DELETE FROM|CREATE)\b", text):
                    yield text


def test_no_sql_names_a_table_of_another_product() -> None:
    """Every table in SQL is created here, is a step of the query, or is a documented catalog.

    If this fails: an engine's private table is read or written; a version of it may rename them.
    """
    texts = list(sql_texts())
    known = {name for text in texts for name in CREATED.findall(text) + NAMED.findall(text)}
    known |= {*METADATA.tables, "alembic_version"}
    used = {name for text in texts for name in READ_OR_WRITTEN.findall(text)}
    assert len(used & known) > 15
    assert {name for name in used - known if not CATALOGS.fullmatch(name)} == set()


def test_every_setting_is_documented() -> None:
    """Each key of a provider's config stands in its README, in backticks.

    If this fails: a setting was added, renamed or removed without its line in the README.
    """
    for spec in provider_specs().values():
        if not spec.config.startswith("corral."):
            continue
        module, _, name = spec.config.partition(":")
        folder = ROOT.joinpath(*module.split(".")[1:-1])
        text = (folder / "README.md").read_text("utf-8")
        for key in getattr(importlib.import_module(module), name).model_fields:
            assert f"`{key}`" in text, f"{spec.provider_type}: {key}"


def test_every_example_is_named_in_the_docs() -> None:
    """A page links to each example, but for the settings that compose.yaml mounts.

    If this fails: nobody finds the example; name it where its subject is explained.
    """
    pages = "".join(path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md"))
    for path in sorted((ROOT / "examples").iterdir()):
        if not path.name.startswith((".", "_", "run.compose")):
            assert f"examples/{path.name}" in pages, path.name


def test_every_rfc_is_in_the_index_and_says_what_enforces_it() -> None:
    """An RFC has the template's sections, and the files that it names as its enforcers exist."""
    index = (ROOT / "rfcs" / "README.md").read_text("utf-8")
    for path in sorted((ROOT / "rfcs").glob("[0-9]*.md")):
        if path.name.startswith("0000"):
            continue
        text = path.read_text("utf-8")
        assert f"({path.name})" in index, path.name
        for section in ("Context", "Decision", "Consequences", "Enforced by"):
            assert f"\n## {section}\n" in text, f"{path.name}: {section}"
        enforcers = text.split("## Enforced by")[1]
        for named in re.findall(r"`((?:tests|api|bench|lab)/[\w/.]+)`", enforcers):
            assert (ROOT / named).exists(), f"{path.name}: {named}"


def test_the_readme_shows_the_capabilities_as_they_are() -> None:
    """README, docs/conformance.json and the providers' own values say the same.

    If this fails: run `make matrix`, which runs the suites and writes the two files.
    """
    data = json.loads(provider_matrix.DATA.read_text("utf-8"))
    assert provider_matrix.shown() == provider_matrix.table(data)
    for name, spec in provider_matrix.own_specs().items():
        assert data[name]["capabilities"] == json.loads(json.dumps(spec.capabilities.as_dict()))


@pytest.mark.parametrize("number", [0])
def test_the_readme_session_runs(number: int, tmp_path: Path) -> None:
    """The README's Python session runs as it stands, with no key and no service."""
    text = (ROOT / "README.md").read_text("utf-8")
    code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[number]
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "torchtune fine-tunes language models." in done.stdout


def test_a_query_option_is_added_in_two_files(tmp_path: Path) -> None:
    """An option is declared in one file and obeyed in one; every kind of request then has it.

    The test adds one to a copy of the product, as docs/architecture.md says.
    If this fails: a list of options stands somewhere else, too; derive it from `SearchDefaults`.
    """
    edits = {
        "api/vector_dbs.py": {
            "    cutoff: Cutoff = ": (
                '    marker: Literal["none", "drop"] = Field(default="none", description="Hits.")\n'
            ),
            "    cutoff: Cutoff | None": (
                '    marker: Literal["none", "drop"] | None'
                ' = _as_registered(SearchDefaults, "marker")\n'
            ),
        },
        "providers/rag/ranking.py": {
            '    if how.vector_db.cutoff == "gap"': (
                '    if how.vector_db.marker == "drop":\n        hits = []\n'
            )
        },
    }
    copy = tmp_path / "corral"
    for room in ("api", "providers", "server"):
        shutil.copytree(ROOT / room, copy / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name, lines in edits.items():
        source = (copy / name).read_text("utf-8")
        for before, line in lines.items():
            assert source.count(before) == 1, before
            source = source.replace(before, line + before)
        (copy / name).write_text(source, "utf-8")
    script = [sys.executable, "-m", "tests.marked_option", str(tmp_path / "home")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    run = subprocess.run(
        script, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    hits, schemas = json.loads(run.stdout)
    assert hits == {
        "registered": 0,
        "requested": 0,
        "overridden": 1,
        "by neither": 1,
        "query": 0,
        "store": 1,
        "store, requested": 0,
    }
    assert {"VectorDBRegistration", "RAGQueryConfig", "QueryParams", "SearchVectorStore"} <= {
        *schemas
    }
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    row = next(line for line in page.splitlines() if "Where is a query option added?" in line)
    assert re.findall(r"`([\w/]+\.py)`", row) == list(edits)
