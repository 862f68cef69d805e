"""The example of a move from Chroma to PostgreSQL: its commands run, and the answers stay."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from corral.server.cli.cli import main

EXAMPLE = Path(__file__).parents[4] / "examples" / "chroma-to-postgresql"
TEXTS = {
    "fence.md": "# Fences\n\nA fence keeps the sheep in.",
    "dog.md": "# Dogs\n\nThe dog sleeps by day.",
}


def commands() -> list[str]:
    """Return the commands of the page, in order."""
    blocks = re.findall(r"```\n(.*?)```", (EXAMPLE / "README.md").read_text("utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.strip().splitlines()]


def test_a_move_from_chroma_to_postgresql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command of the README succeeds, and every query gives the same answer.

    If this fails: the road that the example shows is broken, or changes what is found.
    """
    monkeypatch.setenv("PG_DSN", os.environ["CORRAL_TEST_PGVECTOR_DSN"])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "documents").mkdir()
    for name, text in TEXTS.items():
        (tmp_path / "documents" / name).write_text(text, encoding="utf-8")
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(EXAMPLE / "run.yaml", home)
    answers: list[Any] = []
    for line in commands():
        done = CliRunner().invoke(main, ["--home", str(home), *shlex.split(line)[1:]])
        assert done.exit_code == 0, (line, done.output)
        if "query" in line:
            answers.append(json.loads(done.stdout)["content"])
    assert len(answers) == 3
    assert answers[0] == answers[1] == answers[2]
    shown = CliRunner().invoke(main, ["--home", str(home), "dbs", "show", "handbook", "--json"])
    assert json.loads(shown.stdout)["provider_id"] == "pgvector"
    gone = CliRunner().invoke(main, ["--home", str(home), "dbs", "delete", "handbook", "--yes"])
    assert gone.exit_code == 0
