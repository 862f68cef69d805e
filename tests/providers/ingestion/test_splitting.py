"""Chunks stay within their size, cover the document, and cost no more than they must."""

from __future__ import annotations

import random
import re
import time
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.providers.ingestion.split import splitting
from corral.providers.ingestion.split.budget import BORDER, Window
from corral.providers.ingestion.split.splitting import (
    MIN_WINDOW_CHARACTERS,
    WINDOW_CHARACTERS_PER_TOKEN,
    Piece,
    split,
)
from corral.providers.text.tokens import own_tokenizer, tokenizer

WORDS = [
    "the", "cattle", "中文", "graze,", "in\n", "the\n\nvalley.", "über", "#", "fence", "-", "gate",
    "😀", "naïve", "|", "x", "`", ">", "1.5",
]  # fmt: skip
DOCUMENTS = st.lists(st.sampled_from(WORDS), max_size=400).map(" ".join)


class Spy:
    """A splitter of the library that notes how much text it is given."""

    longest = 0

    def __init__(self, splitter: Any) -> None:
        self.splitter = splitter

    @classmethod
    def of(cls, kind: Any) -> Any:
        """Return a splitter class whose splitters are spies."""
        return SimpleNamespace(from_callback=lambda *args: cls(kind.from_callback(*args)))

    def chunk_indices(self, text: str) -> Any:
        Spy.longest = max(Spy.longest, len(text))
        return self.splitter.chunk_indices(text)


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> type[Spy]:
    """Return the spy between `split` and the library."""
    for name in ("TextSplitter", "MarkdownSplitter"):
        monkeypatch.setattr(splitting, name, Spy.of(getattr(splitting, name)))
    Spy.longest = 0
    return Spy


def prose(words: int) -> str:
    """Return sentences of seeded words."""
    draw = random.Random(7)
    sentences = []
    while words > 0:
        length = draw.randint(4, 15)
        sentences.append(" ".join(draw.choice(WORDS[:6]) for _ in range(length)) + ".")
        words -= length
    return " ".join(sentences)


def check(text: str, pieces: list[Piece], chunk_size: int) -> None:
    """Assert what holds for every split."""
    reached = 0
    for piece in pieces:
        assert text[piece.start : piece.end] == piece.text
        assert piece.text.strip(), "a chunk is blank"
        assert piece.tokens == tokenizer().count(piece.text)
        assert piece.tokens <= chunk_size or len(piece.text) == 1
        assert not text[reached : piece.start].strip(), "text was lost"
        assert piece.end > reached, "a chunk brings nothing new"
        reached = piece.end
    assert not text[reached:].strip(), "text was lost"


@given(DOCUMENTS, st.integers(4, 40), st.booleans(), st.data())
def test_chunks_fit_and_cover_the_text(
    text: str, chunk_size: int, markdown: bool, data: st.DataObject
) -> None:
    """No chunk exceeds its size, spans are exact, and nothing but white space is left out."""
    overlap = data.draw(st.integers(0, chunk_size // 2))
    check(text, split(text, chunk_size=chunk_size, overlap=overlap, markdown=markdown), chunk_size)


@given(st.text(max_size=300), st.integers(1, 20), st.booleans())
def test_any_text_can_be_split(text: str, chunk_size: int, markdown: bool) -> None:
    """Every script and sign; a character that costs more than the size is a chunk of its own."""
    check(text, split(text, chunk_size=chunk_size, overlap=0, markdown=markdown), chunk_size)


@pytest.mark.parametrize(
    ("text", "chunk_size", "overlap"),
    [
        ("\u2003\u2003\n  continued\né", 8, 2),  # where the splitter itself panics
        ("|---|---|---|\n|---|---|---|\n\u2003\u2003|---|---|---|", 5, 0),  # a cell of blanks
    ],
)
def test_wide_white_space_is_white_space(text: str, chunk_size: int, overlap: int) -> None:
    """A text with em spaces, or others that take several bytes, is split like any other.

    If this fails: such a file ends the worker that splits it, and jobs wait until a restart.
    """
    check(text, split(text, chunk_size=chunk_size, overlap=overlap, markdown=True), chunk_size)


@pytest.mark.parametrize("markdown", [False, True])
@pytest.mark.parametrize("overlap", [0, 8])
def test_a_long_text_is_split_in_windows(markdown: bool, overlap: int, spy: type[Spy]) -> None:
    """The splitter sees a window at a time, and its chunks are about as large as without windows.

    If this fails: a text without sentences costs the square of its length (minutes for 300 kB),
    and the server stands still meanwhile.
    """
    text = prose(20_000)
    pieces = split(text, chunk_size=32, overlap=overlap, markdown=markdown)
    check(text, pieces, 32)
    assert spy.longest <= max(MIN_WINDOW_CHARACTERS, 32 * WINDOW_CHARACTERS_PER_TOKEN)
    assert sum(piece.tokens for piece in pieces) / len(pieces) > 18


def test_text_without_any_boundary_is_split_in_windows(spy: type[Spy]) -> None:
    """Han characters without punctuation, too."""
    draw = random.Random(1)
    text = "".join(chr(draw.randint(0x4E00, 0x9FFF)) for _ in range(30_000))
    check(text, split(text, chunk_size=64, overlap=8), 64)
    assert spy.longest <= 64 * WINDOW_CHARACTERS_PER_TOKEN


def test_a_window_grows_where_one_chunk_fills_it() -> None:
    """White space longer than a window neither ends the text nor the loop."""
    text = f"start{' ' * 50_000}end"
    pieces = split(text, chunk_size=8, overlap=0)
    check(text, pieces, 8)
    assert [piece.text for piece in pieces] == ["start", "end"]


@pytest.mark.parametrize("sign", ["`", "~", "|a"])
def test_a_line_of_one_sign_is_read_once(sign: str) -> None:
    """Below a heading a long line may begin a block; that it begins none is seen at once.

    If this fails: such a line of 8,000 tokens holds the interpreter for minutes.
    """
    line = sign * 100_000
    began = time.process_time()
    assert splitting._BLOCK.match(f"{line}\nhay\n") is None
    assert time.process_time() - began < 5


@pytest.mark.parametrize("sign", ["# ", "## ", "> # "])
def test_a_line_of_number_signs_is_one_heading(sign: str) -> None:
    """A number sign within a line makes no heading of the rest of the line.

    If this fails: 200 KB of them are cut 50,000 times, which takes minutes.
    """
    text = sign * 4_000
    began = time.process_time()
    pieces = split(text, chunk_size=512, overlap=0, markdown=True)
    assert time.process_time() - began < 5
    check(text, pieces, 512)
    assert len(pieces) < 20


@pytest.mark.parametrize("markdown", [False, True])
def test_the_splitter_sees_no_long_run_of_blank_lines(markdown: bool, spy: type[Spy]) -> None:
    """Its time grows with the square of such a run; a chunk ends before it, and indents stay.

    If this fails: a Markdown file of 300 KB, nearly all of it blank lines, takes an hour.
    """
    blank = "\n" * 20_000
    text = f"{blank}start{blank}    middle\n{blank} \nend{blank}"
    pieces = split(text, chunk_size=8, overlap=0, markdown=markdown)
    check(text, pieces, 8)
    assert [piece.text.strip() for piece in pieces] == ["start", "middle", "end"]
    assert spy.longest < 3 * MIN_WINDOW_CHARACTERS


def test_neighbors_overlap_by_at_most_the_overlap() -> None:
    """Some chunks repeat the end of the one before, none more than was asked for."""
    text = prose(3000)
    pieces = split(text, chunk_size=40, overlap=12)
    shared = [text[b.start : a.end] for a, b in pairwise(pieces)]
    costs = [tokenizer().count(part) for part in shared if part]
    assert costs
    assert max(costs) <= 12
    assert all(a.end <= b.start for a, b in pairwise(split(text, chunk_size=40, overlap=0)))


def test_markdown_is_split_at_headings() -> None:
    """A section that fits is a chunk; as plain text the same lines are joined."""
    text = "# One\n\nfirst\n\n# Two\n\nsecond\n\n# Three\n\nthird"
    sections = [piece.text for piece in split(text, chunk_size=8, overlap=0, markdown=True)]
    assert sections == ["# One\n\nfirst", "# Two\n\nsecond", "# Three\n\nthird"]


@pytest.mark.parametrize("overlap", [0, 8])
@pytest.mark.parametrize("size", [30, 60, 256])
def test_headings_and_fences_lead_what_follows(size: int, overlap: int) -> None:
    """No chunk is a heading or a fence alone, however long the section or the code block is.

    If this fails: a chunk of three words, all of them in the question, wins the query and says
    nothing.
    """
    code = "\n".join(f"value_{n} = make({n})" for n in range(80))
    text = (
        f"# Guide\n\n## Cattle\n\n{prose(600)}\n\n### Code\n\n```python\n{code}\n```\n\n"
        f"## Table\n\n<!-- begins -->\n\n{prose(40)}\n\n```\n{code}\n```\n\n## End\n\n{prose(300)}"
    )
    pieces = split(text, chunk_size=size, overlap=overlap, markdown=True)
    check(text, pieces, size)
    bare = r"\s*(#+ .*|```\w*|<!--.*)"
    alone = [
        piece.text
        for piece in pieces
        if all(re.fullmatch(bare, line) for line in piece.text.split("\n") if line.strip())
    ]
    assert alone == []
    assert re.match("# Guide\\n\\n## Cattle\\n\\n[a-z]", pieces[0].text)


def test_headings_without_a_body_stay() -> None:
    """At the end of a text, or as long as a chunk: nothing is lost, and it ends."""
    long = "# " + "very " * 40 + "long"
    for text in ("# One", "text\n\n# End", f"{long}\n\ntext", "# a\n\n" * 3000, "```\n" * 3000):
        pieces = split(text, chunk_size=16, overlap=4, markdown=True)
        check(text, pieces, 16)
    assert [p.text for p in split("# One", chunk_size=16, overlap=0, markdown=True)] == ["# One"]


def test_token_spans_follow_the_document() -> None:
    """`first_token` is what the document before the chunk costs, but for a token at each seam."""
    text = prose(500)
    for number, piece in enumerate(split(text, chunk_size=30, overlap=0)):
        assert abs(piece.first_token - tokenizer().count(text[: piece.start])) <= number + 1


def test_a_blank_text_has_no_chunks() -> None:
    """White space is nothing."""
    assert split(" \n\t ", chunk_size=8, overlap=0) == []


class Pairs:
    """The tokenizer of a model: two characters of a word are a token, whatever is before them.

    Args:
        start: Tokens that the beginning of a text costs beside its words.
    """

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.read = 0

    def token_ends(self, text: str) -> list[int]:
        self.read += len(text)
        words = re.finditer(r"\S+", text)
        ends = [min(at + 2, w.end()) for w in words for at in range(w.start(), w.end(), 2)]
        return [0] * (self.start if ends else 0) + ends


@pytest.mark.parametrize("markdown", [True, False])
@pytest.mark.parametrize("start", [0, 3])
def test_a_chunk_fits_into_what_the_model_reads(start: int, markdown: bool) -> None:
    """No chunk has more tokens of the model than it reads, where these are smaller than ours.

    If this fails: the splitter takes a text of fewer bytes than the size for one that fits, so
    sizes must not be scaled beyond a text's bytes; or a chunk that was cut by nearly right sizes is
    not measured for itself.
    """
    tokens = own_tokenizer(Pairs(start))
    draw = random.Random(11)
    numbers = "\n\n".join(
        f"## Part {n}\n\n{' '.join(f'{draw.random():.4f}' for _ in range(60))}." for n in range(8)
    )
    for text in (numbers, prose(2000)):
        for size, window in ((512, 120), (64, 120), (100, 20)):
            pieces = split(
                text,
                chunk_size=size,
                overlap=size // 8,
                markdown=markdown,
                window=Window(tokens, window),
            )
            check(text, pieces, size)
            assert max(tokens.count(piece.text) for piece in pieces) <= window
            fullest = sorted(tokens.count(piece.text) for piece in pieces)[len(pieces) // 2]
            assert fullest * 2 > window or size == 64  # and they are not cut to pieces


def test_the_tokenizer_of_a_model_reads_a_text_a_few_times() -> None:
    """Splitting reads a text with the model's tokenizer at most four times over.

    If this fails: each of the many texts that the splitter asks for is tokenized again, which
    takes a sixth of the time of embedding them.
    """
    model = Pairs()
    text = "\n\n".join(f"## Part {n}\n\n{prose(120)}" for n in range(100))
    split(text, chunk_size=512, overlap=64, markdown=True, window=Window(own_tokenizer(model), 254))
    assert model.read < 4 * len(text)


def test_a_chunk_that_surely_fits_is_not_measured_again() -> None:
    """Short sections are read about once over by the model's tokenizer, not once more for each.

    If this fails: each chunk is tokenized a third time, though it is far below its bound.
    """
    model = Pairs()
    text = "\n\n".join(f"## Part {n}\n\n{'meadow ' * 36}" for n in range(100))
    window = Window(own_tokenizer(model), 200)
    pieces = split(text, chunk_size=512, overlap=0, markdown=True, window=window)
    assert max(window.counter.count(piece.text) for piece in pieces) <= 200 - BORDER
    model.read = 0
    split(text, chunk_size=512, overlap=0, markdown=True, window=window)
    assert model.read < 1.5 * len(text)
