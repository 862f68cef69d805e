"""Runs the clients that cannot be installed beside the project's packages, as processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "clients"
CLIENTS = Path(sys.prefix) / "clients"
FRAMEWORKS = Path(sys.prefix) / "frameworks" / "bin" / "python"


def run_client(name: str, script: str, *arguments: str) -> str:
    """Run a script of tests/clients with the packages of a client, and return what it prints."""
    folder = CLIENTS / name
    if not folder.exists():
        pytest.skip(f"no {folder}: make test installs it")
    return _printed(sys.executable, script, *arguments, PYTHONPATH=str(folder))


def run_framework(script: str, *arguments: str) -> str:
    """Run a script of tests/clients where the frameworks are, and return what it prints."""
    if not FRAMEWORKS.exists():
        pytest.skip("no frameworks: make .venv/.frameworks installs them")
    return _printed(str(FRAMEWORKS), script, *arguments)


def _printed(python: str, script: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [python, str(SCRIPTS / script), *arguments],
        env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", **environment},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
