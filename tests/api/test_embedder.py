"""How much of a text a model reads, told by its tokenizer alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from corral.api.embedder import READ_CHARACTERS, read_share

KNOWN = {"the", "barn", "sheep", "graz", "羊羊", "牧场", "草地", "ing"}


class Pieces:
    """Cuts words into the longest pieces of a vocabulary, else into letters.

    Args:
        unknown: Of these letters a word is one piece, however long: it is not in the vocabulary.
    """

    def __init__(self, unknown: str = "") -> None:
        self._unknown = unknown
        self.asked: list[int] = []

    def token_ends(self, text: str) -> list[int]:
        """Return where each piece ends."""
        self.asked.append(len(text))
        return list(self._ends(text))

    def _ends(self, text: str) -> Iterator[int]:
        start = 0
        for word in text.split(" "):
            if word and word[0] in self._unknown:
                yield start + len(word)
                start += len(word) + 1
                continue
            place = 0
            while place < len(word):
                sizes = (n for n in range(len(word), place, -1) if word[place:n] in KNOWN)
                place = next(sizes, place + 1)
                yield start + place
            start += len(word) + 1


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("the barn", 1.0),
        ("the sheep grazing", 1.0),
        ("dfghjkl", 0.0),
        ("the dfgh", 3 / 7 / 0.87),
        ("牧场草地", 1.0),
        ("问题之一", 0.0),
        ("牧场之一", 2 / 4 / 0.6),
        ("the 牧场之一题之", 5 / (3 * 0.87 + 6 * 0.6)),
        ("?! 😀", 1.0),
        ("", 1.0),
    ],
)
def test_what_is_cut_into_letters_is_not_read(text: str, share: float) -> None:
    """Three letters of a piece count, or two where letters have no case, as a share of what
    counts in a text that a model reads well.

    If this fails: a model without Chinese counts as much as keywords on a Chinese question.
    """
    assert read_share(Pieces(), text) == pytest.approx(share)


def test_a_word_that_is_not_in_the_vocabulary_is_not_read() -> None:
    """BERT's tokenizer makes one unknown token of a whole word in a script that it lacks.

    If this fails: a word of Telugu looks like one that the model knows best.
    """
    tokenizer = Pieces(unknown="వశ")
    assert read_share(tokenizer, "వివి శివశి") == 0.0
    assert read_share(tokenizer, "barn వివి") == pytest.approx(4 / (4 * 0.87 + 2 * 0.6))


def test_a_long_text_costs_no_more() -> None:
    """The beginning stands for the rest.

    If this fails: a question of 10,000 characters is read three times.
    """
    tokenizer = Pieces()
    assert read_share(tokenizer, "the " * 5000) == 1.0
    assert max(tokenizer.asked) <= 2 * READ_CHARACTERS
