"""`corral sync`: a source in run.yaml or named by the command, in process and over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import Result
from sqlalchemy import select

from corral.providers.state.tables import JOBS
from corral.server.cli.failures import CommandError
from corral.server.cli.sync import source_settings

from ...state_database import rows_of
from .stored_documents import stored

Corral = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with two documents."""
    made = tmp_path / "notes"
    made.mkdir()
    (made / "lion.md").write_text("# Lion\n\nIt sleeps.")
    (made / "zebra.txt").write_text("It runs.")
    return made


def test_a_folder_that_the_command_names(corral: Corral, folder: Path) -> None:
    """The vector DB follows the folder; the summary counts, and failures are the exit code."""
    corral("dbs", "create", "farm")
    done = corral("sync", "farm", folder)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("farm: 2 documents stored, 0 deleted, 0 unchanged")
    (folder / "lion.md").unlink()
    (folder / "bad.pdf").write_text("%PDF-1.4 broken")
    done = corral("sync", "farm", folder, "--json")
    assert done.exit_code == 1
    shown = json.loads(done.stdout)
    assert [shown[name] for name in ("stored", "deleted", "unchanged", "failed")] == [0, 1, 1, 1]
    assert shown["failures"][0]["name"] == "bad.pdf"
    assert list(map(str, stored(corral)["document_ids"])) == ["zebra.txt"]


def test_a_sync_of_run_yaml(corral: Corral, folder: Path, home: Path) -> None:
    """Its name is the source, its settings hold, and a token is masked by `corral config show`."""
    entry = {
        "name": "notes",
        "vector_db_id": "farm",
        "prefix": "n/",
        "source": {"type": "folder", "path": str(folder)},
    }
    secret = {"type": "git", "url": "https://example.org/x.git", "token": "very-secret"}
    syncs = [entry, {"name": "code", "vector_db_id": "farm", "source": secret}]
    with (home / "run.yaml").open("a") as file:
        file.write(yaml.safe_dump({"sync": syncs}))
    corral("dbs", "create", "farm")
    done = corral("sync", "farm", "notes")
    assert done.exit_code == 0, done.output
    assert sorted(map(str, stored(corral)["document_ids"])) == ["n/lion.md", "n/zebra.txt"]
    shown = corral("config", "show")
    assert shown.exit_code == 0, shown.output
    assert "very-secret" not in shown.output
    assert "https://example.org/x.git" in shown.output
    assert corral("sync", "farm", "notes", "--prefix", "x/").exit_code == 2
    corral("dbs", "create", "other")
    assert "has no source 'notes'" in corral("sync", "other", "notes").output


def test_what_is_no_source(corral: Corral, tmp_path: Path) -> None:
    """A typo, and a vector DB that does not exist, change nothing and say what to do."""
    assert "git+URL" in corral("sync", "farm", tmp_path / "nowhere").output
    (tmp_path / "empty").mkdir()
    done = corral("sync", "farm", tmp_path / "empty")
    assert done.exit_code
    assert "farm" in done.output


def test_forms_of_a_source() -> None:
    """Each address has its type."""
    assert source_settings("s3://bucket/x") == {"type": "objects", "url": "s3://bucket/x"}
    assert source_settings("git+ssh://git@host/x") == {"type": "git", "url": "ssh://git@host/x"}
    assert source_settings("feed+https://h/f")["type"] == "feed"
    assert source_settings("https://h/")["type"] == "site"
    with pytest.raises(CommandError):
        source_settings("ftp://h/")


@pytest.mark.parametrize("done", [1, 40])
def test_a_killed_sync_continues(corral: Corral, home: Path, tmp_path: Path, done: int) -> None:
    """After kill -9 in the middle, the next run leaves exactly the folder, nothing twice or half.

    It is killed once so many documents are stored, after some changed and some are gone.

    If this fails: after a power failure, deleted documents stay or changed ones are missing.
    """
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(100):
        (folder / f"{number:03}.md").write_text(f"# Field {number}\n\nHay of {number} is dry.")
    corral("dbs", "create", "farm")
    assert corral("sync", "farm", folder).exit_code == 0
    for number in range(100):
        path = folder / f"{number:03}.md"
        if number % 5:
            path.write_text(f"# Field {number}\n\nOats of {number} are wet.")
        else:
            path.unlink()
    before = completed(home)
    command = [sys.executable, "-m", "corral.server.cli.cli", "--home", str(home)]
    with subprocess.Popen([*command, "sync", "farm", str(folder)]) as process:
        while process.poll() is None and completed(home) < before + done:
            time.sleep(0.01)
        process.kill()
    again = corral("sync", "farm", folder)
    assert again.exit_code == 0, again.output
    shown = json.loads(corral("documents", "list", "farm", "--json").stdout)
    names = [f"{number:03}.md" for number in range(100) if number % 5]
    assert [(each["document_id"], each["chunk_count"]) for each in shown] == [(n, 1) for n in names]
    for number in (1, 49, 99):
        one = corral("documents", "show", "farm", f"{number:03}.md", "--json").stdout
        assert f"Oats of {number}" in json.loads(one)["chunks"][0]["content"]
    assert ": 0 documents stored, 0 deleted, 80 unchanged" in corral("sync", "farm", folder).stdout


def completed(home: Path) -> int:
    """Return the number of jobs that have ended well."""
    return len(rows_of(home, select(JOBS.c.job_id).where(JOBS.c.status == "completed")))
