"""Citation markers are taken out of a streamed text, however it is cut into pieces."""

from __future__ import annotations

import random

import pytest

from corral.providers.rag.markers import CitationMarkers

KNOWN = {1, 2, 3}


def parted(*pieces: str) -> tuple[str, list[tuple[int, int]]]:
    """Return the final text, and each citation as (source, code points before it)."""
    markers = CitationMarkers(KNOWN.__contains__)
    text, cited = "", []
    for parts in (*map(markers.feed, pieces), markers.end()):
        for part in parts:
            if isinstance(part, str):
                text += part
            else:
                cited.append((part, len(text)))
    return text, cited


@pytest.mark.parametrize(
    ("answer", "text", "cited"),
    [
        ("Oak [1].", "Oak.", [(1, 3)]),
        ("Oak [1, 2] and 【3】", "Oak and", [(1, 3), (2, 3), (3, 7)]),
        ("Oak [1][2]", "Oak", [(1, 3), (2, 3)]),
        ("Oak [1;3]", "Oak", [(1, 3), (3, 3)]),
        ("🦊 héllo [2]", "🦊 héllo", [(2, 7)]),
        ("Oak [9].", "Oak [9].", []),
        ("Oak [1, 9].", "Oak.", [(1, 3)]),
        ("a[1](http://x) b", "a[1](http://x) b", []),
        ("see [1", "see [1", []),
        ("[a] [ ] [] 【x】", "[a] [ ] [] 【x】", []),
        ("x\n```\nv[1] = 2\n```\ny [1]", "x\n```\nv[1] = 2\n```\ny", [(1, 20)]),
        ("~~~\n[1]\n```\n[2]\n~~~\n[3]", "~~~\n[1]\n```\n[2]\n~~~\n", [(3, 20)]),
        ("two  [1] spaces", "two  spaces", [(1, 4)]),
        ("", "", []),
    ],
)
def test_markers_of_known_sources_are_citations(
    answer: str, text: str, cited: list[tuple[int, int]]
) -> None:
    """A marker of a known source goes with one space before it; all other brackets are text."""
    assert parted(answer) == (text, cited)


def test_pieces_make_no_difference() -> None:
    """A stream that is cut anywhere has the text and the citations of the whole.

    If this fails: what a client shows depends on how a model's service sends its tokens.
    """
    rng = random.Random(11)
    bits = ["[1]", "[1, 2]", "【3】", "[9]", "word", "```", "~~~", *"[] \n(1,é🦊\u00a0【】;"]
    for _ in range(5000):
        answer = "".join(rng.choices(bits, k=rng.randrange(1, 14)))
        cuts = sorted(rng.choices(range(len(answer) + 1), k=rng.randrange(0, 6)))
        pieces = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
        assert parted(*pieces) == parted(answer), (answer, pieces)
        assert parted(*answer) == parted(answer), answer


def test_what_is_held_back_is_bounded() -> None:
    """Text waits only while it can become a marker.

    If this fails: a bracket that a model never closes stops the stream.
    """
    markers = CitationMarkers(KNOWN.__contains__)
    opened = "[" + "1, " * 40
    shown = [part for letter in opened for part in markers.feed(letter)]
    assert len("".join(map(str, shown))) > len(opened) - 70
