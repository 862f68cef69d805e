"""`corral dbs list --orphans` and `corral dbs prune`: what a killed process left behind."""

from __future__ import annotations

import functools
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from corral.providers.base.config import load_config

from .conftest import make_home

Corral = Callable[..., Result]

KILLED = """
import os, signal, sys
from corral.providers.stack.vector_db_table import VectorDBTable
from corral.server.cli.cli import main
VectorDBTable.add = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
main(["--home", sys.argv[1], "dbs", "create", "lost"])
"""
"""Registers a vector DB, and is killed when its index is made and its registration is not."""


@pytest.fixture
def files(corral: Corral, home: Path, documents: Path) -> Callable[[], set[Path]]:
    """Fill the vector DB `farm`, have a process killed, and return a way to list the files."""
    assert corral("ingest", "farm", documents, "--create").exit_code == 0
    killed = subprocess.run([sys.executable, "-c", KILLED, str(home)], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    return lambda: set((home / "sqlite").rglob("*.db"))


def test_a_killed_registration_leaves_an_orphan_that_can_be_removed(
    corral: Corral, files: Callable[[], set[Path]]
) -> None:
    """It is listed with its name, goes only with --yes or a yes, and nothing else goes.

    If this fails: data that nobody can reach stays for ever, or `prune` deletes what is in use.
    """
    both = files()
    assert len(both) == 2
    listed = corral("dbs", "list", "--orphans", "--json")
    [orphan] = json.loads(listed.stdout)["data"]
    assert orphan["name"] in {path.stem for path in both}
    shown = corral("dbs", "list", "--orphans")
    assert orphan["name"] in shown.stdout
    refused = corral("dbs", "prune")
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert files() == both
    done = corral("dbs", "prune", "--yes")
    assert done.exit_code == 0, done.output
    assert "Deleted: 1" in done.stdout
    assert {path.stem for path in both - files()} == {orphan["name"]}
    assert "No orphans found" in corral("dbs", "list", "--orphans").stdout
    assert corral("query", "farm", "sheep").exit_code == 0
    assert corral("dbs", "list", "--json").stdout.count('"identifier"') == 1


def test_what_is_registered_meanwhile_is_no_orphan(
    corral: Corral, home: Path, files: Callable[[], set[Path]]
) -> None:
    """A name that is no orphan is refused, and nothing is deleted, not even true orphans."""
    from ..harness import InProcess, message_of

    both = files()
    [orphan] = json.loads(corral("dbs", "list", "--orphans", "--json").stdout)["data"]
    [held] = [path.stem for path in both if path.stem != orphan["name"]]
    names = [{"provider_id": "sqlite", "name": name} for name in (orphan["name"], held)]
    with InProcess(home) as app:
        refused = app.send("POST", "/v1/orphans/remove", {"orphans": names})
        assert refused.status_code == 400
        assert held in message_of(refused)
    assert files() == both


def test_a_provider_that_is_down_is_named_and_hides_nothing(
    corral: Corral, home: Path, files: Callable[[], set[Path]]
) -> None:
    """The orphans of the others are listed; who could not be asked is said."""
    text = (home / "run.yaml").read_text(encoding="utf-8")
    at = "{url: 'http://127.0.0.1:9', retries: 0}"
    down = f"    - {{provider_id: far, provider_type: 'remote::qdrant', config: {at}}}\n"
    (home / "run.yaml").write_text(text.replace("  embedding:", f"{down}  embedding:"))
    shown = corral("dbs", "list", "--orphans")
    assert shown.exit_code == 0, shown.output
    assert any(path.stem in shown.stdout for path in files())
    assert "far did not answer" in shown.stderr


@pytest.fixture
def two(tmp_path: Path, invoke: Corral) -> list[Corral]:
    """Two data folders whose vector DBs are in one folder, each with a vector DB `farm`."""
    commands: list[Corral] = []
    for name in ("first", "second"):
        home = make_home(tmp_path / name)
        shared = f"config: {{folder: {json.dumps(str(tmp_path / 'shared'))}}}"
        text = (home / "run.yaml").read_text(encoding="utf-8")
        text = text.replace('"inline::sqlite"', f'"inline::sqlite", {shared}')
        (home / "run.yaml").write_text(text, encoding="utf-8")
        commands.append(functools.partial(invoke, "--home", home))
        assert commands[-1]("dbs", "create", "farm").exit_code == 0
    return commands


def test_another_installations_data_is_deleted_by_its_id_only(
    two: list[Corral], tmp_path: Path
) -> None:
    """`prune` alone deletes none of it and counts it; only `--installation ID` deletes it.

    If this fails: `corral dbs prune` deletes the vector DBs that another data folder uses.
    """
    first, second = two
    own = re.search("# installation: ([0-9a-f]{32})\n", first("config", "show").stdout)
    assert own is not None
    files = {path.stem for path in (tmp_path / "shared").glob("*.db")}
    listed = json.loads(second("dbs", "list", "--orphans", "--json").stdout)
    assert listed["data"] == []
    [theirs] = listed["others"]
    assert theirs["installation"] == own[1]
    shown = second("dbs", "list", "--orphans").stdout
    assert own[1] in shown
    assert theirs["name"] in shown

    for options in ([], ["--installation", listed["installation"]]):
        done = second("dbs", "prune", "--yes", *options)
        assert (done.exit_code, "No orphans found" in done.stdout) == (0, True)
        assert f"Not deleted: 1 of installation {own[1]}." in done.stdout
    for name in ("unknown", "f" * 32):
        refused = second("dbs", "prune", "--yes", "--installation", name)
        assert refused.exit_code == 2
        assert own[1] in refused.stderr
    assert {path.stem for path in (tmp_path / "shared").glob("*.db")} == files
    assert first("dbs", "show", "farm").exit_code == 0

    asked = second("dbs", "prune", "--installation", own[1])
    assert (asked.exit_code, "--yes" in asked.stderr) == (2, True)
    done = second("dbs", "prune", "--yes", "--installation", own[1])
    assert (done.exit_code, "Deleted: 1" in done.stdout) == (0, True)
    assert {path.stem for path in (tmp_path / "shared").glob("*.db")} == files - {theirs["name"]}


def test_the_http_route_refuses_another_installations_data(
    two: list[Corral], tmp_path: Path
) -> None:
    """Without its id, the answer is a 409 that says whose it is, and nothing is deleted."""
    from ..harness import InProcess, message_of

    listed = json.loads(two[1]("dbs", "list", "--orphans", "--json").stdout)
    [theirs] = listed["others"]
    body = {"orphans": [{key: theirs[key] for key in ("provider_id", "name")}]}
    config = load_config(None, tmp_path / "second")
    with InProcess(tmp_path / "second", config) as app:
        assert app.ok("GET", "/v1/version")["installation"] == listed["installation"]
        for given in ({}, {"installation": listed["installation"]}, {"installation": "unknown"}):
            refused = app.send("POST", "/v1/orphans/remove", body | given)
            assert refused.status_code == 409
            assert f"belongs to installation {theirs['installation']}" in message_of(refused)
    assert two[0]("dbs", "show", "farm").exit_code == 0
