"""`corral conformance`: the suite on a configured provider, and all that keeps it from running."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from corral.api.testing.matrix import standard_groups
from corral.providers.vector_io.memory import SPEC as MEMORY
from corral.providers.vector_io.sqlite import SPEC as SQLITE
from corral.server.cli import conformance

Corral = Callable[..., Result]

IGNORES_FILTERS = """
from dataclasses import replace

from corral.providers.vector_io.memory import SPEC as MEMORY
from corral.providers.vector_io.memory.provider import MemoryProvider
from corral.providers.vector_io.store.engine import ChunkFileEngine

VECTORS = replace(MEMORY.capabilities, keyword="no", hybrid="no", fuzzy=False)
SPEC = replace(
    MEMORY, provider_type="inline::careless", factory="careless:create", capabilities=VECTORS
)

class Careless(ChunkFileEngine):
    async def search_vector(self, embedding, k, filters):
        return await super().search_vector(embedding, k, None)

class Provider(MemoryProvider):
    async def open_index(self, vector_db, *, create=False):
        index = await super().open_index(vector_db, create=create)
        index.engine.__class__ = Careless
        return index

def create(provider_id, config, home):
    return Provider(provider_id, config)
"""


@pytest.fixture
def no_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test where the suite is started after all."""
    monkeypatch.setattr(conformance, "_run_suite", lambda *_: pytest.fail("the suite was started"))


def configure(home: Path, *providers: dict[str, Any]) -> None:
    """Write a run.yaml with these vector_io providers."""
    hashing = {"provider_id": "hashing", "provider_type": "inline::hashing"}
    run = {"providers": {"vector_io": list(providers), "embedding": [hashing]}}
    (home / "run.yaml").write_text(yaml.safe_dump(run), encoding="utf-8")


def stored(home: Path) -> dict[str, bytes]:
    """Return the files of SQLite vector DBs with what is in them."""
    files = (path for path in (home / "sqlite").rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in files}


def test_a_provider_conforms_and_the_data_beside_it_is_untouched(
    corral: Corral, home: Path, documents: Path, tmp_path: Path
) -> None:
    """Exit code 0, a line for each group, the same as JSON; other vector DBs stay as they are.

    If this fails at the files: a scratch vector DB was left, or another one was opened.
    """
    assert corral("ingest", "db", documents, "--create").exit_code == 0
    before = stored(home)
    file = tmp_path / "matrix.json"
    done = corral("conformance", "inline::sqlite", "--json", file)
    assert done.exit_code == 0, done.output
    assert stored(home) == before
    report = json.loads(file.read_text("utf-8"))
    assert (report["provider_type"], report["provider_id"]) == ("inline::sqlite", "sqlite")
    assert report["conforms"] is True
    assert report["capabilities"] == json.loads(json.dumps(SQLITE.capabilities.as_dict()))
    assert list(report["groups"]) == list(standard_groups())
    for name, group in report["groups"].items():
        assert group["outcome"] in {"passed", "not applicable"}, name
        assert f"{name} " in done.stdout
        counted = group["passed"] + group["not_applicable"]
        assert counted == len(standard_groups()[name])
        assert (group["failed"], group["not_run"], group["failures"]) == (0, 0, [])
    assert "inline::sqlite (sqlite) conforms: all " in done.stdout


def test_a_defect_is_named_with_its_rule(tmp_path: Path, home: Path) -> None:
    """A provider from another package that ignores filters: exit code 1, test, rule and finding.

    Nobody configured it, so its type's defaults are taken, and the data folder stays empty.
    """
    package = tmp_path / "package"
    info = package / "careless-1.dist-info"
    info.mkdir(parents=True)
    (package / "careless.py").write_text(IGNORES_FILTERS)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: careless\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[corral.providers]\ncareless = careless:SPEC\n")
    file = tmp_path / "matrix.json"
    done = subprocess.run(
        [*command(home), "conformance", "inline::careless", "--json", str(file)],
        capture_output=True, text=True, timeout=100, check=False,
        env={**os.environ, "PYTHONPATH": str(package), "PYTEST_ADDOPTS": "--no-such-option"},
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "filter: test_a_filter_is_applied_before_the_top_k" in done.stdout
    assert "rule: One far chunk passes, 200 near ones do not" in done.stdout
    assert "inline::careless (careless) does not conform: " in done.stdout
    report = json.loads(file.read_text("utf-8"))
    groups = report["groups"]
    assert report["conforms"] is False
    assert {name for name, one in groups.items() if one["outcome"] == "failed"} == {
        "filter", "differential", "acl"
    }  # fmt: skip
    assert groups["persistence"]["outcome"] == "not applicable"
    assert groups["filter"]["failed"] <= len(groups["filter"]["failures"])
    assert set(groups["filter"]["failures"][0]) == {"test", "rule", "message"}
    assert sorted(path.name for path in home.iterdir()) == ["run.yaml"]


def test_an_interrupted_run_leaves_nothing(home: Path) -> None:
    """Ctrl-C ends the suite, and the vector DBs that it had made are gone."""
    process = subprocess.Popen(
        [*command(home), "conformance", "inline::sqlite"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not stored(home):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    assert stored(home) == {}


@pytest.mark.usefixtures("no_suite")
def test_an_unknown_type_is_refused_with_the_nearest(corral: Corral) -> None:
    """Exit code 2, the name that was meant, all that there are."""
    done = corral("conformance", "inline::sqlit")
    assert done.exit_code == 2
    assert "Unknown provider 'inline::sqlit'" in done.stderr
    assert "Did you mean 'inline::sqlite'?" in done.stderr
    assert MEMORY.provider_type in done.stderr


@pytest.mark.usefixtures("no_suite")
def test_a_provider_of_another_kind_is_refused(corral: Corral) -> None:
    """There are suites for engines and for readers only."""
    done = corral("conformance", "inline::hashing")
    assert done.exit_code == 2
    assert "inline::hashing has no suite" in done.stderr


@pytest.mark.usefixtures("no_suite")
def test_of_several_one_has_to_be_named(corral: Corral, home: Path) -> None:
    """Two providers of one type: their ids are listed; an id that is none of them is refused."""
    configure(
        home,
        {"provider_id": "one", "provider_type": "inline::sqlite"},
        {"provider_id": "two", "provider_type": "inline::sqlite"},
        {"provider_id": "mem", "provider_type": "inline::memory"},
    )
    done = corral("conformance", "inline::sqlite")
    assert done.exit_code == 2
    assert "one, two" in done.stderr
    assert "--provider-id" in done.stderr
    done = corral("conformance", "inline::sqlite", "--provider-id", "mem")
    assert done.exit_code == 2
    assert "Unknown provider 'mem'" in done.stderr
    assert conformance.choose(None, home, "inline::sqlite", "two").entry.provider_id == "two"


@pytest.mark.usefixtures("no_suite")
def test_a_backend_that_is_down_is_named_before_any_test(corral: Corral, home: Path) -> None:
    """503 with the provider's id and type; exit code 1, since the command was right."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = {"host": "127.0.0.1", "port": port}
    configure(home, {"provider_id": "pg", "provider_type": "remote::pgvector", "config": config})
    done = corral("conformance", "remote::pgvector")
    assert done.exit_code == 1
    assert "503: provider 'pg' (remote::pgvector) cannot serve: " in done.stderr


@pytest.mark.usefixtures("no_suite")
def test_what_else_is_refused_before_any_test(
    corral: Corral, invoke: Corral, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server's URL, a file that cannot be written, pytest that is not installed."""
    done = invoke("--url", "http://127.0.0.1:1", "conformance", "inline::memory")
    assert done.exit_code == 2
    assert "leave out --url" in done.stderr
    done = corral("conformance", "inline::memory", "--json", tmp_path / "absent" / "m.json")
    assert done.exit_code == 2
    assert "does not exist" in done.stderr
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pytest" else find_spec(name)
    )
    done = corral("conformance", "inline::memory")
    assert done.exit_code == 1
    assert "Run: pip install 'corral-rag[testing]'" in done.stderr


def test_a_suite_that_breaks_down_is_no_verdict(
    corral: Corral, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where pytest itself fails, its last words are shown and nothing is said to conform."""
    (tmp_path / "pytest.py").write_text("print('no way')\nraise SystemExit(2)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # instead of the real one
    done = corral("conformance", "inline::memory")
    assert done.exit_code == 1
    assert "The suite ended with 2" in done.stderr
    assert "no way" in done.stderr
    assert "conforms" not in done.stdout


def command(home: Path) -> list[str]:
    """Return the command line in a process of its own."""
    return [sys.executable, "-m", "corral.server.cli.cli", "--home", str(home)]
