"""`corral bench split`: data in one vector DB beside the same data in several."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from corral.server.cli.cli import main

from .judged_files import write_beir

TEXT = "hay straw oats rye barley clover sheep goat cow horse barn fence gate field"
WORDS = TEXT.split()


def judged(folder: Path) -> Path:
    """Write a set of 60 documents and 14 questions, each answered by the documents of a word."""
    texts = [f"{WORDS[n % 14]} {WORDS[n % 5]} {WORDS[n % 3]}" for n in range(60)]
    return write_beir(
        folder,
        corpus=[{"_id": f"d{n}", "title": "", "text": text} for n, text in enumerate(texts)],
        queries=[{"_id": word, "text": word} for word in WORDS],
        qrels=[
            "query-id\tcorpus-id\tscore",
            *(f"{WORDS[n % 14]}\td{n}\t1" for n in range(60)),
        ],
    )


def run(home: Path, *options: str) -> tuple[int, str]:
    """Run `corral bench split` and return its exit code and output."""
    command = ["--home", str(home), "bench", "split", *options]
    done = CliRunner(env={"COLUMNS": "200"}).invoke(main, command)
    return done.exit_code, done.output


def test_exact_engines_lose_nothing(tmp_path: Path) -> None:
    """Each mode, number of parts and way to split has a row, and its difference is 0.

    If this fails: `test_corpus.py` says what of several vector DBs is not as of one.
    """
    code, output = run(
        tmp_path / "home", "--data", str(judged(tmp_path / "set")), "--embedder", "hashing",
        "--backends", "sqlite,memory", "--parts", "2,5",
    )  # fmt: skip
    assert code == 0, output
    rows = [line.split() for line in output.splitlines() if re.search(r" (block|random) ", line)]
    assert len(rows) == 3 * 2 * 2
    for _set, mode, parts, _way, one, split, difference, slowest, all_, bound in rows:
        assert (one, difference) == (split, "+0.0000"), (mode, parts)
        assert float(bound) >= float(slowest)
        assert float(all_) > 0


def test_one_part_is_refused(tmp_path: Path) -> None:
    """Data in one part are not split."""
    code, output = run(tmp_path / "home", "--data", "miniature", "--parts", "1,2")
    assert code != 0
    assert "--parts takes numbers >= 2 (got 1)." in output
