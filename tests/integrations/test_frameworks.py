"""The adapters of frameworks pass the frameworks' own suites, in an environment of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "integrations"
PYTHON = Path(sys.prefix) / "frameworks" / "bin" / "python"
ADAPTERS = {
    "corral-client": 6,
    "langchain-corral": 60,
    "llama-index-corral": 16,
    "haystack-corral": 80,
    "dspy-corral": 4,
}
"""Folders, each with the least number of its tests: a suite that shrinks is noticed."""


def python() -> str:
    """Return the interpreter that has the frameworks."""
    if not PYTHON.exists():
        pytest.skip("no frameworks: make .venv/.frameworks installs them")
    return str(PYTHON)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_suite_passes(adapter: str, tmp_path: Path) -> None:
    """Over HTTP and in process, with nothing skipped and nothing expected to fail.

    If this fails: run `.venv/frameworks/bin/python -m pytest -c integrations/pytest.ini
    integrations/ADAPTER`.
    """
    done = subprocess.run(
        [python(), "-m", "pytest", "-q", "-c", str(FOLDER / "pytest.ini"), f"--rootdir={FOLDER}",
         f"--basetemp={tmp_path / 'temporary'}", str(FOLDER / adapter)],
        cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed in", done.stdout)
    assert passed is not None, done.stdout  # anything else would stand before "in"
    assert int(passed[1]) >= ADAPTERS[adapter]


def test_versions_are_pinned() -> None:
    """integrations/constraints.txt pins exact versions by name, and each framework among them."""
    lines = (FOLDER / "constraints.txt").read_text("utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[\w.!+]+", line) for line in pins)
    names = {line.split("==")[0].lower() for line in pins}
    wanted = (FOLDER / "requirements.txt").read_text("utf-8").splitlines()
    assert {line for line in wanted if not line.startswith("#")} <= names
