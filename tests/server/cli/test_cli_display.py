"""What is shown: plain where nobody watches, and harmless whatever a document holds."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from corral.server.cli import dbs, display, progress

HIT = {
    "legs": {
        "vector": {"rank": 2, "score": 0.8, "raw_score": 0.6},
        "keyword": {"rank": 1, "score": 0.9, "raw_score": 9.0},
    },
    "contributions": {"vector": 0.49, "keyword": 0.5},
    "matched_terms": ["iron"],
}


def reply(text: str = "The gate.", document: str = "gate.txt") -> dict[str, object]:
    """Return a RAG reply of one hit."""
    metadata = {
        "filenames": [document], "chunks": [text], "scores": [0.99], "explanations": [HIT],
        "token_count": 42, "max_tokens": 50, "dropped": 3,
    }  # fmt: skip
    return {"content": [{"type": "text", "text": text}], "metadata": metadata}


def shown(renderable: RenderableType, width: int = 100) -> str:
    """Return a renderable as text."""
    output = io.StringIO()
    Console(file=output, width=width, markup=False, emoji=False).print(renderable)
    return output.getvalue()


def test_a_hit_shows_its_ranks() -> None:
    """Rank, score, rank in each leg, document, words; "-" where a leg did not find it."""
    rows = display.hit_rows(reply())
    words = shown(display.hits_table(rows)).splitlines()[-1].split()
    assert words == ["1", "0.990", "2", "1", "gate.txt", "The", "gate."]
    assert display.HitRow(1, 0.5, "d", "t").leg_rank("vector") == "-"


def test_the_context_says_its_size_and_what_did_not_fit() -> None:
    """Tokens against the budget, and the number of hits that were dropped."""
    text = shown(display.context(reply()))
    assert "Context: 42 of 50 tokens, 3 more hits did not fit" in text
    assert "The gate." in text


@pytest.mark.parametrize(
    "evil", ["\x1b[2J\x1b]0;owned\x07", "\r\x08", "\x9b31m", "\u202eevil", "\ud800", "a\tb"]
)
def test_documents_cannot_steer_the_terminal(evil: str) -> None:
    """Control characters and marks of writing direction in texts, names and terms are not printed.

    If this fails: something reaches the console without `display.clean`.
    """
    rows = display.hit_rows(reply(evil, evil))
    for renderable in (
        display.hits_table(rows),
        display.context(reply(evil)),
        display.modes_table({"vector": [evil]}),
        display.settings_table({"name": evil}),
        dbs.vector_dbs_table([{"identifier": evil}]),
    ):
        assert not re.search(
            "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", shown(renderable)
        )


def test_documents_are_no_markup() -> None:
    """Square brackets in a text are text."""
    assert "[red]fence[/red]" in shown(display.context(reply("[red]fence[/red] :cow:")))
    assert ":cow:" in shown(display.context(reply("[red]fence[/red] :cow:")))


@pytest.mark.parametrize("width", [60, 100])
def test_tables_keep_within_the_width(width: int) -> None:
    """Long names and texts in any script are cut or wrapped, never wider than the screen."""
    long = reply("\N{CJK UNIFIED IDEOGRAPH-6F22} " * 500, "folder/" * 30 + "文件.md")
    rows = display.hit_rows(long)
    for renderable in (
        display.hits_table(rows),
        display.why_table(rows),
        display.context(long),
        display.modes_table({mode: ["x" * 90] for mode in ("vector", "keyword", "hybrid")}),
    ):
        assert max(cell_len(line) for line in shown(renderable, width).splitlines()) <= width


def test_a_name_is_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """What does not fit into a row of 100 columns goes on in the next: a name can be copied.

    If this fails: a model or a provider type ends in an ellipsis, in a pipe too.
    """
    table = display.new_table("vector DB", "chunks>", "model")
    display.add_row(table, "X" * 60, 1, "Y" * 60)
    display.show(table)
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert (shown.count("X"), shown.count("Y")) == (60, 60)
    assert all(len(line) <= 100 for line in shown.splitlines())


def test_numbers_of_things_and_sizes_are_told_as_people_do() -> None:
    """One chunk is no chunks; a small file is not 0 KiB."""
    told = [display.counted(number, "chunk") for number in (0, 1, 2000)]
    assert told == ["0 chunks", "1 chunk", "2,000 chunks"]
    sizes = [display.size(number) for number in (0, 1, 1023, 1536, 5 << 20)]
    assert sizes == ["0 bytes", "1 byte", "1,023 bytes", "1.5 KiB", "5.0 MiB"]
    assert display._setting(["tenant:*", "user:ann"]) == "tenant:*, user:ann"


def test_weights_are_shown_with_what_they_are_made_of() -> None:
    """Alpha, spread, product and weight of each leg, once; nothing where spreads do not matter."""
    legs = {"vector": {"rank": 1, "raw_score": 0.9, "score": 0.9}}
    why = {
        "legs": legs, "asked": {"vector": 0.4, "keyword": 0.6},
        "spreads": {"vector": 2.5, "keyword": 5.0},
    }  # fmt: skip
    metadata = {
        "scores": [1.0, 0.5], "filenames": ["a", "b"], "chunks": ["x", "y"],
        "explanations": [why, why],
    }  # fmt: skip
    rows = display.hit_rows({"metadata": metadata})
    table = display.weights_table(rows)
    assert table is not None
    assert [line.split() for line in shown(table).splitlines() if line.strip()][2:] == [
        ["vector", "0.400", "2.500", "1.000", "0.250"],
        ["keyword", "0.600", "5.000", "3.000", "0.750"],
    ]
    assert display.weights_table(display.hit_rows(reply("text"))) is None


def test_modes_stand_side_by_side_without_repeats() -> None:
    """Each mode's documents in order, each once, five at most."""
    text = shown(display.modes_table({"vector": list("aabcdefg"), "keyword": ["z"]}))
    assert [line.split() for line in text.splitlines() if line.strip()][2:] == [
        ["1", "a", "z"],
        ["2", "b"],
        ["3", "c"],
        ["4", "d"],
        ["5", "e"],
    ]


def test_progress_in_a_pipe_is_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Where no bar can be drawn, progress is plain lines on stderr, with count and estimate."""
    with progress.progress(3, 300, seconds_between_lines=0) as advance:
        for _ in range(3):
            advance(1, 100)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(
        r"Ingesting: 1/3 documents, about 0 s left\nIngesting: 2/3 documents, about 0 s left\n",
        printed.err,
    )


def test_progress_of_a_short_ingest_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """What is done in a moment needs no progress."""
    with progress.progress(1, 1) as advance:
        advance(1, 1)
    assert capsys.readouterr().err == ""
