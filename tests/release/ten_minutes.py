"""A stranger's first ten minutes: `make ten-minutes` runs what the pages print, on a new machine.

The machine is a folder: an empty HOME, a new environment, and nothing but an index of packages
with this checkout's wheel in it. Every command and program is read from its page, so none can
drift. Only what a page cannot know is replaced: the port, if 8321 is taken, and names of services.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
PORT = "8321"
HANDBOOK = (
    "# Refunds\n\nA refund takes three days. Write to the office, with the number of the order.\n"
)


def blocks(page: str, language: str = "") -> list[str]:
    """Return the code blocks of a page, without the prompts of a shell."""
    text = (ROOT / page).read_text("utf-8")
    fences = re.findall(r"^```([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [
        re.sub(r"^\$ ", "", code, flags=re.MULTILINE) for kind, code in fences if kind == language
    ]


def block(page: str, words: str, language: str = "") -> str:
    """Return the first block of a page that contains some words."""
    return next(each for each in blocks(page, language) if words in each)


class Machine:
    """A folder that plays a new machine.

    Args:
        folder: An empty folder.
        index: Address of an index with the wheel.
    """

    def __init__(self, folder: Path, index: str) -> None:
        self.place = folder / "work"
        self.home = folder / "home"
        for each in (self.place, self.home):
            each.mkdir()
        environment = folder / "environment"
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        self._variables = {
            "HOME": str(self.home),
            "PATH": os.pathsep.join([str(environment / "bin"), "/usr/bin", "/bin"]),
            "PIP_EXTRA_INDEX_URL": index,
            **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
        }
        self.port = _free_port(int(PORT))

    def shell(self, commands: str) -> str:
        """Run commands as printed, and return what they print."""
        return self._run(["/bin/sh", "-ec", self._adapted(commands)])

    def python(self, program: str) -> str:
        """Run a program as printed, and return what it prints."""
        return self._run(["python", "-c", self._adapted(program)])

    @contextmanager
    def serving(self, command: str) -> Iterator[str]:
        """Start a server with a command as printed, and yield its address."""
        words = f"exec {command.strip()}"
        if self.port != int(PORT):
            words += f" --port {self.port}"
        process = subprocess.Popen(["/bin/sh", "-ec", words], cwd=self.place, env=self._variables)
        address = f"http://127.0.0.1:{self.port}"
        try:
            _wait_for(f"{address}/v1/ready", process)
            yield address
        finally:
            process.terminate()
            assert process.wait(60) == 0, "the server did not stop cleanly"

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self.place,
            env=self._variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}"
        return done.stdout

    def _adapted(self, text: str) -> str:
        return text.replace(PORT, str(self.port))


def ten_minutes(machine: Machine) -> Iterator[str]:
    """Do what the pages say, step by step, and yield the name of each finished step."""
    first, answer = blocks("README.md")[:2]
    install, *commands = first.strip().splitlines()
    machine.shell(install)
    yield f"install: {install}"
    assert answer in machine.shell("\n".join(commands)), "the answer is not the README's"
    yield "first answer, with its source, as the README prints it"
    assert "Context:" in machine.shell("corral demo")
    yield "corral demo"
    assert "problem" not in machine.shell("corral doctor")
    yield "corral doctor"
    for name in ("access.md", "moving.md"):
        (machine.place / "docs").mkdir(exist_ok=True)
        shutil.copy(ROOT / "docs" / name, machine.place / "docs")
    (machine.place / "handbook.md").write_text(HANDBOOK, "utf-8")
    served = block("README.md", "make serve").splitlines()
    machine.shell("\n".join(line for line in served if line.startswith("corral ")))
    yield "the README's commands after `make serve`"
    machine.shell("pip install openai")
    with machine.serving(block("docs/getting-started.md", "corral serve")) as address:
        browser = urllib.request.Request(f"{address}/", headers={"Accept": "text/html"})
        with urllib.request.urlopen(browser) as page:
            assert "<title>Corral" in page.read().decode()
        yield "corral serve, and its page"
        assert "fence" in machine.shell(
            block("docs/getting-started.md", "curl").replace(
                "how do I move to another backend?", "What keeps the sheep in?"
            )
        )
        yield "a context over HTTP"
        program = block("docs/openai.md", "how do refunds work?", "python")
        assert "A refund takes three days." in machine.python(program)
        yield "OpenAI's client: upload, attach and search"
        program = block("docs/answers.md", "client.responses.create", "python")
        assert "fence.md" in machine.python(program.replace("qwen3:8b", "extractive"))
        yield "OpenAI's client: an answer with its citation"
    yield from _moved(machine)


def _moved(machine: Machine) -> Iterator[str]:
    """Copy the vector DB to PostgreSQL, if the environment of the tests has its programs."""
    try:
        from tests.providers.vector_io.pgvector.conftest import PASSWORD, postgresql
    except ImportError:
        yield "PostgreSQL: left out, because its programs are not installed"
        return
    with postgresql() as server:
        settings = block("docs/moving.md", "remote::pgvector", "yaml").replace(
            "host: db.example.org, database: corral, user: corral",
            f"host: 127.0.0.1, port: {server.port}, database: postgres, user: postgres",
        )
        (machine.home / ".corral" / "run.yaml").write_text(settings, "utf-8")
        machine.shell("pip install 'corral-rag[pgvector]'")
        lines = block("docs/moving.md", "corral copy").splitlines()
        copy = next(line for line in lines if line.startswith("corral copy"))
        copy = copy.replace("handbook", "notes")
        assert "same" in machine.shell(f"export PG_PASSWORD={shlex.quote(PASSWORD)}\n{copy}")
        yield copy


def _free_port(preferred: int) -> int:
    for port in (preferred, 0):
        try:
            with socket.create_server(("127.0.0.1", port)) as taken:
                return int(taken.getsockname()[1])
        except OSError:
            continue
    raise AssertionError("no port is free")


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert process.poll() is None, "the server has stopped"
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the server is not ready after two minutes")


def build(folder: Path) -> Path:
    """Build the wheel of this commit, and return the root of a simple index that has it."""
    sources = folder / "sources"
    sources.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-x"], cwd=sources, input=archive.stdout, check=True)
    package = folder / "index" / "corral-rag"
    package.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
    subprocess.run([*command, str(package), str(sources)], check=True, capture_output=True)
    return folder / "index"


@contextmanager
def index_of(root: Path) -> Iterator[str]:
    """Serve an index on 127.0.0.1, and yield its address."""
    port = _free_port(0)
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([*command, "--directory", str(root)], stdout=quiet, stderr=quiet)
    try:
        _wait_for(f"http://127.0.0.1:{port}/", process)
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait(60)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="corral-stranger-") as folder:
        root = build(Path(folder))
        with index_of(root) as index:
            started = last = time.monotonic()
            for step in ten_minutes(Machine(Path(folder), index)):
                now = time.monotonic()
                print(f"{now - last:6.1f} s  {step}", flush=True)
                last = now
            print(f"{last - started:6.1f} s  in all")
