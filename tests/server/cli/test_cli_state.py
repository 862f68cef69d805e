"""`corral state copy`: an installation moves to PostgreSQL and back, and goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from corral.providers.state.opening import STATE_NAME

from ...providers.conftest import postgresql_url, state_server
from .conftest import RUN_YAML, Corral, make_home

__all__ = ["postgresql_url", "state_server"]

FORTH = ("state", "copy", "sqlite", "${env.MOVED_STATE}")
BACK = ("state", "copy", "${env.MOVED_STATE}", "sqlite")


@pytest.fixture(autouse=True)
def url(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of an empty database, which the environment has too."""
    monkeypatch.setenv("MOVED_STATE", postgresql_url)
    return postgresql_url


def use(home: Path, state: str) -> None:
    """Set `state` in run.yaml."""
    settings = yaml.safe_load(RUN_YAML) | {"state": state}
    (home / "run.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")


def read(corral: Corral, *words: Any) -> Any:
    """Return the reply of a command that succeeds."""
    done = corral(*words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def answers(corral: Corral) -> tuple[Any, Any]:
    """Return the answer to a query, and the installation of their vector DB."""
    content = read(corral, "query", "farm", "fox")["content"]
    assert "the quick fox" in str(content)
    return content, read(corral, "dbs", "show", "farm")["installation"]


@pytest.mark.sqlite_state("a copy from SQLite and back")
def test_an_installation_moves_and_goes_on(home: Path, tmp_path: Path, corral: Corral) -> None:
    """After each copy, queries answer as before, and the id of the installation is the same.

    If this fails: data of inline providers has no host after the move, so that another machine
    opens an empty index for it; or engines hold data of an installation that no longer exists.
    """
    (tmp_path / "fox.txt").write_text("the quick fox", encoding="utf-8")
    assert corral("ingest", "farm", tmp_path / "fox.txt", "--create").exit_code == 0
    before = answers(corral)
    forth = corral(*FORTH)
    assert (forth.exit_code, "rows of" in forth.stdout) == (0, True), forth.output
    (home / STATE_NAME).unlink()
    use(home, "${env.MOVED_STATE}")
    assert answers(corral) == before
    assert corral(*BACK).exit_code == 0
    use(home, "sqlite")
    assert answers(corral) == before


@pytest.mark.sqlite_state("a copy from SQLite and back")
def test_data_of_another_machine_stays_reachable(
    home: Path, tmp_path: Path, corral: Corral, invoke: Corral
) -> None:
    """A state cannot become one machine's while another machine has data of a vector DB.

    If this fails: the machine opens an empty index under its name.
    """
    use(home, "${env.MOVED_STATE}")
    made = ("dbs", "create", "farm", "--provider", "sqlite")
    assert corral(*made).exit_code == 0
    other = make_home(tmp_path / "other")
    refused = invoke("--home", other, *BACK)
    assert refused.exit_code != 0
    assert "'farm' is on another machine" in refused.stderr
    assert read(lambda *words: invoke("--home", other, *words), "dbs", "list") == []
    assert corral(*BACK).exit_code == 0


def test_no_refusal_shows_the_password(corral: Corral, url: str) -> None:
    """A wrong URL is refused without its password, and an unset variable by its name."""
    wrong = corral("state", "copy", "postgresql://ann:@pa55word@db/x", "sqlite")
    assert wrong.exit_code == 2
    assert "pa55word" not in wrong.output
    unset = corral("state", "copy", "${env.NO_SUCH_STATE}", "sqlite")
    assert unset.exit_code == 2
    assert "NO_SUCH_STATE" in unset.output
