"""`corral dbs list --orphans` and `corral dbs prune`: what a killed process left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Corral = Callable[..., Result]

KILLED = """
import os, signal, sys
from corral.providers.vector_db_table import VectorDBTable
from corral.server.command_line.cli import main
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
