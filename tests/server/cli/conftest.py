"""A command line with a data folder of its own, and a server to compare it with."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from corral.server.cli.cli import main

Corral = Callable[..., Result]
"""Runs `corral ARGUMENTS...` and returns what it printed and its exit code."""

RUN_YAML = """
providers:
  vector_io:
    - {provider_id: sqlite, provider_type: "inline::sqlite"}
  embedding:
    - {provider_id: hashing, provider_type: "inline::hashing", config: {dimension: 64}}
"""


def make_home(folder: Path) -> Path:
    """Return a data folder whose run.yaml needs no model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.yaml").write_text(RUN_YAML, encoding="utf-8")
    return folder


@pytest.fixture(scope="session", autouse=True)
def on_path() -> Iterator[None]:
    """Put `corral` on PATH, so that hints name it without its folder."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session")
def invoke() -> Corral:
    """The command line in this process, without any option given."""
    return lambda *arguments: CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A data folder that no other test uses."""
    return make_home(tmp_path / "home")


@pytest.fixture
def corral(home: Path, invoke: Corral) -> Corral:
    """The command line on the test's own data folder, in process."""
    return lambda *arguments: invoke("--home", home, *arguments)


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real server, started by `corral serve` on a free port."""
    folder = make_home(tmp_path_factory.mktemp("server"))
    command = [sys.executable, "-m", "corral.server.cli.cli", "--home", str(folder)]
    process = subprocess.Popen(
        [*command, "serve", "--port", "0"], stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )
    assert process.stderr is not None
    started = ""
    for line in process.stderr:
        started += line
        found = re.search(r"running on (http://127\.0\.0\.1:\d+)", line)
        if found:
            break
    else:
        pytest.fail(f"the server did not start:\n{started}")
    reader = threading.Thread(target=process.stderr.read)  # or a full pipe would stop the server
    reader.start()
    yield found[1]
    process.terminate()
    process.wait(60)
    reader.join()
    process.stderr.close()


# Finding the main content of a page that names none loads a library, 0.3 s for each ingest.
_HAY = f"<html><title>Hay</title><main><p>{'Hay is stored dry in the barn. ' * 4}</p></main></html>"
DOCUMENTS = {
    "fences.md": "# Fences\n\nA fence keeps the cattle in. Posts stand three meters apart.",
    "notes/gate.txt": "The gate opens inward and is latched with an iron hook.",
    "notes/deep/water.rst": "Water\n=====\n\nThe trough holds two hundred liters of water.",
    "page.html": _HAY,
    "blåbær.markdown": "# Blåbær\n\nBlåbær vokser i skogen bak låven.",
    ".hidden.md": "nobody sees this",
    ".git/config.txt": "nor this",
    "picture.png": "GIF89a is no document",
    "binary.txt": "PK\0\1\2",
    "empty.md": " \n",
}


def make_documents(folder: Path) -> Path:
    """Make a folder of five documents among files that are none."""
    for name, text in DOCUMENTS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """A folder of five documents among files that are none."""
    return make_documents(tmp_path / "documents")


@pytest.fixture(scope="session")
def filled_home(tmp_path_factory: pytest.TempPathFactory, invoke: Corral) -> Callable[[str], Path]:
    """Data folders whose vector DB of a name holds the documents: each made once, to be copied."""

    @functools.cache
    def filled(name: str) -> Path:
        home = make_home(tmp_path_factory.mktemp("filled"))
        documents = make_documents(tmp_path_factory.mktemp("documents"))
        assert invoke("--home", home, "ingest", name, documents, "--create").exit_code == 0
        return home

    return filled
