"""`corral demo`: the whole way, on generated files and on the project's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from corral.server.cli import demo

Corral = Callable[..., Result]

QUESTION = "How far apart do the posts of a fence stand?"


@pytest.fixture
def run_yaml(home: Path) -> Path:
    """A configuration that needs no model."""
    return home / "run.yaml"


@pytest.fixture
def shown(invoke: Corral, run_yaml: Path, documents: Path) -> Result:
    """The demo on the generated files."""
    done = invoke(
        "--config", run_yaml, "demo", "--path", documents, "--ask", QUESTION, "--max-tokens", 250
    )
    assert done.exit_code == 0, done.output
    return done


def test_the_whole_way_is_shown(shown: Result) -> None:
    """Registration, ingest, context with tokens against the budget, hits, modes, next commands."""
    text = shown.stdout
    assert "demo: hybrid search on sqlite" in text
    assert "Ingested    5 documents" in text
    assert QUESTION in text
    used, budget = (int(word) for word in text.split("Context: ")[1].split()[:3:2])
    assert 0 < used <= budget == 250
    assert "Posts stand three meters apart." in text
    lines = [line.split() for line in text.splitlines()]
    assert ["#", "score", "vector", "keyword", "document"] in lines
    assert ["1", "1.000", "1", "1", "fences.md"] in lines
    assert ["#", "vector", "keyword", "hybrid"] in lines
    assert ["1", "fences.md", "fences.md", "fences.md"] in lines
    answer = text.split("Answered")[1].split("Next:")[0]
    assert "Posts stand three meters apart. [1]" in answer
    assert "[1] fences.md" in answer
    assert text.count("  corral ") == 4


def test_in_a_pipe_it_is_plain_text_of_100_columns(shown: Result) -> None:
    """No escape sequences, no line over 100 columns, no progress in what is captured."""
    assert "\x1b" not in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 100
    assert "Ingesting" not in shown.stdout


def test_it_repeats_itself_and_disturbs_nobody(
    run_yaml: Path, documents: Path, tmp_path: Path, shown: Result
) -> None:
    """A second run shows the same, and neither touches the user's data folder or leaves any.

    Run as a process of its own, the way users do.
    """
    folder, scratch = tmp_path / "users", tmp_path / "scratch"
    scratch.mkdir()
    command = [
        sys.executable,
        "-m",
        "corral.server.cli.cli",
        "--config",
        str(run_yaml),
        "demo",
    ]
    options = ["--path", str(documents), "--ask", QUESTION, "--max-tokens", "250"]
    environment = {**os.environ, "CORRAL_HOME": str(folder), "TMPDIR": str(scratch)}
    again = subprocess.run(
        [*command, *options], capture_output=True, text=True, env=environment, check=True,
        encoding="utf-8",
    )  # fmt: skip
    seconds = re.compile(r"in \d+\.\d s")
    assert seconds.sub("", again.stdout) == seconds.sub("", shown.stdout)
    assert not folder.exists()
    assert list(scratch.iterdir()) == []


def test_several_questions_are_asked(invoke: Corral, run_yaml: Path, documents: Path) -> None:
    """Every `--ask` gets its own context."""
    done = invoke(
        "--config", run_yaml, "demo", "--path", documents, "--ask", "hay", "--ask", "iron hook"
    )
    assert done.stdout.count("Context: ") == 2


def test_the_default_question_is_answered_by_the_project(invoke: Corral, run_yaml: Path) -> None:
    """Without options the project's README and rfcs go in, and the rfc on scores is found.

    If this fails: the documents moved, or the question no longer fits them.
    """
    done = invoke("--config", run_yaml, "demo")
    assert done.exit_code == 0, done.output
    table = done.stdout.split("keyword   document")[1]
    assert "rfcs/0002-score-semantics.md" in table


def test_the_readme_shows_what_the_demo_prints(invoke: Corral, run_yaml: Path) -> None:
    """Each line of the README's output begins one of the demo's, but for figures and hits.

    The README is one of the documents that the demo asks, so it must not hold the question that
    they do not answer.

    If this fails: run `make demo` and paste what it prints into the README, shortened.
    """

    def bare(text: str) -> list[str]:
        lines = (re.sub(r"[\d.]+", "#", line.partition("[...]")[0]) for line in text.splitlines())
        return [line.rstrip("─ ") for line in lines]

    readme = (demo.PROJECT / "README.md").read_text("utf-8")
    assert demo.UNANSWERED not in readme
    shown = bare(readme.partition("`make demo` prints, shortened:\n\n```\n")[2].partition("```")[0])
    printed = bare(invoke("--config", run_yaml, "demo").stdout)
    of_the_model = ("Registered", "Context:", "Content:", "#  ")
    ours = [line for line in shown if line and not line.startswith(of_the_model)]
    assert len(ours) > 3
    for line in ours:
        assert any(each.startswith(line) for each in printed), line


def test_an_installed_package_brings_its_documents(tmp_path: Path) -> None:
    """Without a README beside the rfcs, as in a wheel, it is read from the package's metadata."""
    assert demo.readme(tmp_path).startswith("# Corral")


def test_ones_own_files_need_a_question(invoke: Corral, run_yaml: Path, documents: Path) -> None:
    """Only the user knows what to ask of the user's files."""
    refused = invoke("--config", run_yaml, "demo", "--path", documents)
    assert refused.exit_code == 2
    assert "--ask" in refused.stderr


def test_an_empty_folder_is_refused(invoke: Corral, run_yaml: Path, tmp_path: Path) -> None:
    """Nothing to ingest: exit code 2."""
    (tmp_path / "void").mkdir()
    refused = invoke("--config", run_yaml, "demo", "--path", tmp_path / "void", "--ask", "x")
    assert refused.exit_code == 2
    assert "nothing to ingest" in refused.stderr


def test_a_budget_that_is_too_small_is_said(
    invoke: Corral, run_yaml: Path, documents: Path, corral: Corral
) -> None:
    """A budget that holds not even the frame: the server's note, and no traceback."""
    done = invoke(
        "--config", run_yaml, "demo", "--path", documents, "--ask", "hay", "--max-tokens", 1
    )
    assert done.exit_code == 0, done.output
    assert "Traceback" not in done.output
