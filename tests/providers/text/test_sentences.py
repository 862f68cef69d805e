"""The sentences of a text."""

from __future__ import annotations

import random

import pytest

from corral.providers.text.sentences import sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A fence. A gate! Which?", ["A fence.", "A gate!", "Which?"]),
        (
            "Dr. Smith paints, e.g. in oak. It holds.",
            ["Dr. Smith paints, e.g. in oak.", "It holds."],
        ),
        ("J. R. R. Tolkien wrote. Am 3. Oktober.", ["J. R. R. Tolkien wrote.", "Am 3. Oktober."]),
        ("It costs 3.50 at node.js.org today.", ["It costs 3.50 at node.js.org today."]),
        ("He said “no.” She left.", ["He said “no.”", "She left."]),
        ("我来了。你好！再见", ["我来了。", "你好！", "再见"]),
        ("यह है। वह है।", ["यह है।", "वह है।"]),
        ("هل هذا؟ نعم.", ["هل هذا؟", "نعم."]),
        ("# Title\n\nText\n- one\n- two", ["Title", "Text", "one", "two"]),
        ("> 1. said\n> 2. done", ["said", "done"]),
        ("3 sheep - and a dog.", ["3 sheep - and a dog."]),
        (" \n - ", []),
    ],
)
def test_sentences_end_at_their_marks(text: str, expected: list[str]) -> None:
    """Marks of every script end a sentence; abbreviations, initials and numbers do not."""
    assert [text[start:end] for start, end in sentences(text)] == expected


def test_sentences_cover_the_text() -> None:
    """Sentences are in order, do not overlap, and leave out white space and marks only."""
    rng = random.Random(5)
    for _ in range(3000):
        text = "".join(rng.choices('ab .!?\n。।Dr-#1"”', k=rng.randrange(0, 40)))
        spans = sentences(text)
        ends = [0, *(end for _, end in spans)]
        starts = [*(start for start, _ in spans), len(text)]
        between = (text[a:b] for a, b in zip(ends, starts, strict=True))
        assert not set("".join(between)) - set(" \n-#1."), text
        assert all(start < end for start, end in spans)
