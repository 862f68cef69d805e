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


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Run the suites in one pytest, which imports and starts Corral once; return what it says."""
    folder = tmp_path_factory.mktemp("frameworks")
    done = subprocess.run(
        [python(), "-m", "pytest", "-v", "-c", str(FOLDER / "pytest.ini"), f"--rootdir={FOLDER}",
         f"--basetemp={folder / 'temporary'}", *(str(FOLDER / adapter) for adapter in ADAPTERS)],
        cwd=folder, capture_output=True, text=True, timeout=280, check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_suite_passes(adapter: str, said: str) -> None:
    """Over HTTP and in process, with nothing skipped and nothing expected to fail.

    If this fails: run `.venv/frameworks/bin/python -m pytest -c integrations/pytest.ini
    integrations/ADAPTER`.
    """
    assert re.search(r"= \d+ passed in", said), said  # anything else would stand before "in"
    passed = re.findall(rf"^\S*{adapter}/\S+::.* PASSED", said, re.MULTILINE)
    assert len(passed) >= ADAPTERS[adapter]


def test_versions_are_pinned() -> None:
    """integrations/constraints.txt pins exact versions by name, and each framework among them."""
    lines = (FOLDER / "constraints.txt").read_text("utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[\w.!+]+", line) for line in pins)
    names = {line.split("==")[0].lower() for line in pins}
    wanted = (FOLDER / "requirements.txt").read_text("utf-8").splitlines()
    assert {line for line in wanted if not line.startswith("#")} <= names
