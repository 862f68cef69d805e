"""The example provider: installed from its folder, found, configured, used, and conforming."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from corral.server.cli.cli import main

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "corral-provider-dict"
RUN_YAML = """
providers:
  vector_io:
    - {provider_id: dict, provider_type: "inline::dict"}
  embedding:
    - {provider_id: hashing, provider_type: "inline::hashing", config: {dimension: 64}}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the example is installed into, as pip does it; without a network."""
    folder = tmp_path_factory.mktemp("example")
    source = folder / "source"  # setuptools writes beside what it builds
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-build-isolation", "--no-index", "--target"]
    subprocess.run([*command, str(folder / "site"), str(source)], check=True, timeout=100)
    return folder / "site"


def ask(url: str, *arguments: object) -> str:
    """Run the command line on a server, in this process, where nothing is installed."""
    done = CliRunner().invoke(main, ["--url", url, *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.stdout


def environment(site: Path) -> dict[str, str]:
    """Return the environment of a process that finds the example."""
    return {**os.environ, "PYTHONPATH": str(site)}


@pytest.fixture(scope="module")
def url(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of `corral serve`, on a data folder whose run.yaml names the example."""
    home = tmp_path_factory.mktemp("home")
    (home / "run.yaml").write_text(RUN_YAML, encoding="utf-8")
    command = [sys.executable, "-m", "corral.server.cli.cli", "--home", str(home)]
    with subprocess.Popen(
        [*command, "serve", "--port", "0"], stderr=subprocess.PIPE, text=True,
        env=environment(site),
    ) as process:  # fmt: skip
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line
            if found := re.search(r"running on (http://127\.0\.0\.1:\d+)", line):
                break
        else:
            pytest.fail(f"the server did not start:\n{said}")
        reader = threading.Thread(target=process.stderr.read)
        reader.start()
        yield found[1]
        process.terminate()
        reader.join()


def test_it_is_found_by_its_entry_point(url: str) -> None:
    """Once installed, `corral providers` lists its type, and what run.yaml made of it."""
    listed = ask(url, "providers")
    assert re.search(r"^inline::dict +vector_io +native +native +emulated", listed, re.MULTILINE)
    assert re.search(r"^dict +vector_io +inline::dict +OK", listed, re.MULTILINE)


def test_it_is_ingested_into_and_asked_in_every_mode(url: str, tmp_path: Path) -> None:
    """Registered by configuration; each mode finds the document that answers the question."""
    (tmp_path / "fence.md").write_text("A fence keeps the cattle in.")
    (tmp_path / "barn.md").write_text("Hay is stored dry in the barn.")
    assert "farm" in ask(url, "dbs", "create", "farm", "--provider", "dict")
    ask(url, "ingest", "farm", tmp_path)
    for mode in ("vector", "keyword", "hybrid"):
        answer = ask(url, "query", "farm", "cattle fence", "--mode", mode, "--k", 1)
        assert "fence.md" in answer, mode
        assert "barn.md" not in answer, mode


def test_its_own_tests_pass(site: Path) -> None:
    """The test file that the guide shows runs and passes, in a pytest that knows only Corral."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull,
         f"--rootdir={EXAMPLE}", str(EXAMPLE / "test_corral_provider_dict.py")],
        capture_output=True, text=True, timeout=100, check=False,
        env={**environment(site), "PYTHONDONTWRITEBYTECODE": "1",
             "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert re.search(r"\d{3} passed", done.stdout)


def test_the_guide_is_the_example() -> None:
    """Each block of docs/writing-a-provider.md is a part of a file that runs, letter by letter.

    If this fails: the example was changed; copy the part into the guide again.
    """
    text = (ROOT / "docs" / "writing-a-provider.md").read_text("utf-8")
    blocks: list[tuple[str, str]] = re.findall(r"```(python|toml)\n(.*?)```", text, re.DOTALL)
    files = {
        "python": [(EXAMPLE / name).read_text("utf-8") for name in
                   ("corral_provider_dict.py", "test_corral_provider_dict.py",
                    ROOT / "tests" / "providers" / "reader" / "test_guide.py")],
        "toml": [(EXAMPLE / "pyproject.toml").read_text("utf-8")],
    }  # fmt: skip
    languages = [language for language, _ in blocks]
    assert languages == ["python", "python", "toml", "python", "python", "python"]
    for language, block in blocks:
        assert any(block.strip("\n") in file for file in files[language]), block
