"""The example of a team's folder: its commands keep a vector DB in step."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from corral.server.cli.cli import main

PAGE = Path(__file__).parents[2] / "examples" / "team-folder" / "README.md"
RUN_YAML = """
providers:
  embedding:
    - {provider_id: hashing, provider_type: "inline::hashing", config: {dimension: 64}}
default_embedding_model: hashing
"""


def test_the_vector_db_follows_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is added is found, what is changed is found as it is now, what is gone is gone.

    If this fails: the page promises what the command does not do.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "run.yaml").write_text(RUN_YAML, encoding="utf-8")
    folder = tmp_path / "folder"
    folder.mkdir()
    blocks = re.findall(r"```\n(.*?)\n```", PAGE.read_text("utf-8"), re.DOTALL)
    sync, watch, query = (shlex.split(block)[1:] for block in blocks)
    assert watch[:-1] == [word for word in sync if word != "--create"]
    assert watch[-1] == "--watch"

    def run(*words: str) -> Result:
        done = CliRunner().invoke(main, ["--home", str(tmp_path / "home"), *words])
        assert done.exit_code == 0, done.output
        return done

    (folder / "fence.md").write_text("A fence keeps the sheep in.", encoding="utf-8")
    (folder / "dog.md").write_text("The dog sleeps.", encoding="utf-8")
    run(*sync)
    assert "A fence keeps" in run(*query).stdout
    (folder / "fence.md").write_text("A hedge keeps the sheep in.", encoding="utf-8")
    (folder / "dog.md").unlink()
    run(*sync)
    found = run(*query).stdout
    assert "A hedge keeps" in found
    assert "A fence keeps" not in found
    assert "dog.md" not in run("documents", "list", "handbook").stdout
