"""Runs the command line, for the tests beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from click.testing import CliRunner, Result

from corral.server.cli import main

RUN_YAML = """
providers:
  vector_io:
    - {provider_id: sqlite, provider_type: "inline::sqlite"}
  embedding:
    - {provider_id: hashing, provider_type: "inline::hashing", config: {dimension: 64}}
"""


class Corral(Protocol):
    """Runs `corral ARGUMENTS...` and returns what it printed and its exit code."""

    def __call__(self, *arguments: object) -> Result: ...


def make_home(folder: Path) -> Path:
    """Return a data folder whose run.yaml needs no model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.yaml").write_text(RUN_YAML, encoding="utf-8")
    return folder


def invoke(*arguments: object) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])
