"""`corral export` and `corral import`: in process and by URL, and what they refuse."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from ...state_database import copy_home

Corral = Callable[..., Result]


@pytest.fixture
def filled(corral: Corral, home: Path, filled_home: Callable[[str], Path]) -> Corral:
    """The command line on a data folder with the vector DB `farm`."""
    copy_home(filled_home("farm"), home)
    return corral


def hits(corral: Corral, db: str) -> object:
    """Return what a query of a vector DB finds."""
    done = corral("query", db, "sheep fence", "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["metadata"]["scores"]


def test_a_vector_db_is_moved_by_a_file(filled: Corral, tmp_path: Path) -> None:
    """Out, in under another name, and both answer alike; a file is not overwritten unasked."""
    file = tmp_path / "farm.corral"
    out = filled("export", "farm", file)
    assert out.exit_code == 0, out.output
    assert "chunks" in out.stdout
    done = filled("import", file, "--as", "barn")
    assert done.exit_code == 0, done.output
    assert "barn: hybrid search on sqlite" in done.stdout
    assert hits(filled, "barn") == hits(filled, "farm")
    again = filled("export", "farm", file)
    assert (again.exit_code, "--force" in again.stderr) == (2, True)
    told = json.loads(filled("export", "farm", file, "--force", "--json").stdout)
    assert (told["chunks"] > 0, told["bytes"]) == (True, file.stat().st_size)
    assert [path.name for path in tmp_path.glob("*.part")] == []


def test_it_is_the_same_by_url(
    filled: Corral, invoke: Corral, server_url: str, tmp_path: Path
) -> None:
    """From this folder to a server, and back."""
    file, back = tmp_path / "a.corral", tmp_path / "b.corral"
    assert filled("export", "farm", file).exit_code == 0
    done = invoke("--url", server_url, "import", file, "--as", "moved")
    assert done.exit_code == 0, done.output
    assert invoke("--url", server_url, "export", "moved", back).exit_code == 0
    assert filled("import", back, "--as", "back").exit_code == 0
    assert hits(filled, "back") == hits(filled, "farm")
    invoke("--url", server_url, "dbs", "delete", "moved", "--yes")


def test_a_tenant_moves_its_own(corral: Corral, documents: Path, tmp_path: Path) -> None:
    """In process, too, `--tenant` exports and imports that tenant's vector DBs and no other's.

    If this fails: a tenant's data lands with the operator, or leaves with somebody else.
    """
    file = tmp_path / "farm.corral"
    assert corral("--tenant", "acme", "ingest", "farm", documents, "--create").exit_code == 0
    assert corral("export", "farm", file).exit_code == 2
    assert corral("--tenant", "acme", "export", "farm", file).exit_code == 0
    assert corral("--tenant", "globex", "import", file).exit_code == 0
    assert "farm" in corral("--tenant", "globex", "dbs", "list").stdout
    assert "farm" not in corral("dbs", "list").stdout


def test_what_cannot_be_moved(filled: Corral, tmp_path: Path) -> None:
    """A taken name, no snapshot, an unknown vector DB: exit code 2, a reason, and no file."""
    file, text = tmp_path / "farm.corral", tmp_path / "text"
    text.write_text("hello", encoding="utf-8")
    assert filled("export", "farm", file).exit_code == 0
    for arguments, said in (
        (("import", file), "exists"),
        (("import", text), "not a snapshot"),
        (("import", tmp_path / "absent"), "absent"),
        (("export", "nobody", tmp_path / "x"), "There is no vector DB 'nobody'"),
    ):
        done = filled(*arguments)
        assert (done.exit_code, said in done.stderr) == (2, True), done.output
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "farm.corral",
        "text",
    ]


def test_only_a_regular_file_is_overwritten(corral: Corral, tmp_path: Path) -> None:
    """A snapshot takes the place of no pipe or device, even with --force, and makes no folder.

    If this fails: `export DB /dev/null --force` run by root takes /dev/null away from everybody.
    """
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    refused = corral("export", "farm", pipe, "--force")
    assert (refused.exit_code, pipe.is_fifo()) == (2, True), refused.output
    assert "is not a regular file." in refused.stderr
    refused = corral("export", "farm", tmp_path / "absent" / "farm.corral")
    assert refused.exit_code == 2
    assert f"folder {tmp_path / 'absent'} does not exist." in refused.stderr
