"""The README's programs for clients run as printed against a real server, with each client."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.providers.base.config import RunConfig

from ..harness import live_server

ROOT = Path(__file__).parents[3]
CLIENTS = Path(sys.prefix) / "clients"
IMPORT = "from llama_stack_client import LlamaStackClient  # or: from ogx_client import OgxClient"
ADDRESS = "http://127.0.0.1:8321"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a server with the settings of a new installation."""
    with live_server(RunConfig(), tmp_path_factory.mktemp("home")) as address:
        yield address


@pytest.mark.parametrize(
    ("number", "client", "last"),
    [
        (1, "llama-stack", ""),
        (1, "ogx", ""),
        (2, "", "\nprint(''.join(item.text for item in answer.content))"),
    ],
    ids=["llama-stack-client 0.7.5", "ogx-client", "llama-stack-client 0.2.12"],
)
def test_the_readmes_program_runs(url: str, number: int, client: str, last: str) -> None:
    """What somebody copies from the README finds the text that it stores.

    If this fails: the README shows a method that the newest client does not have, or the server
    refuses what that client sends.
    """
    folder = CLIENTS / client
    if client and not folder.exists():
        pytest.skip(f"no {folder}: make test installs it")
    readme = (ROOT / "README.md").read_text("utf-8")
    code = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[number]
    assert ADDRESS in code
    if number == 1:
        assert IMPORT in code
    if client == "ogx":
        code = code.replace(IMPORT, IMPORT.partition("# or: ")[2])
        code = code.replace("LlamaStackClient(", "OgxClient(")
    done = subprocess.run(
        [sys.executable, "-c", code.replace(ADDRESS, url) + last],
        env={**os.environ, "PYTHONPATH": str(folder) if client else ""},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Gjerdet holder sauene inne." in done.stdout
