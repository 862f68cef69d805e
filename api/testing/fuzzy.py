"""Standard tests: fuzzy keyword search finds misspelled words, or is refused."""

from __future__ import annotations

import pytest

from corral.api.errors import InvalidRequest
from corral.api.testing.indexes import PLAIN, Handle, Indexes, ids
from corral.api.testing.suite import Suite, needs

TEXTS = {"herd": "elephants crossing rivers", "town": "market square", "sea": "harbor and ships"}


def filled(indexes: Indexes) -> Handle:
    """Return an index of three texts without a common word."""
    index = indexes.open(**PLAIN)
    index.add_texts(TEXTS)
    return index


@needs(lambda can: can.fuzzy)
class FuzzyTests(Suite):
    """Providers with the capability `fuzzy`."""

    def test_a_misspelled_word_is_found(self, indexes: Indexes) -> None:
        """One letter wrong, two swapped or one missing: only this chunk is found."""
        index = filled(indexes)
        for query in ("elefants", "elephnats", "elephant"):
            assert ids(index.keyword(query, fuzzy=True)) == ["herd"], query

    def test_words_are_exact_unless_it_is_asked_for(self, indexes: Indexes) -> None:
        """Without fuzzy a misspelled word finds nothing."""
        assert ids(filled(indexes).keyword("elefants")) == []

    def test_a_word_that_is_right_scores_as_ever(self, indexes: Indexes) -> None:
        """A correctly spelled word has the same hits and scores with fuzzy and without."""
        index = filled(indexes)
        exact, fuzzy = index.keyword("harbor"), index.keyword("harbor", fuzzy=True)
        assert ids(fuzzy) == ids(exact)
        assert fuzzy.scores == pytest.approx(exact.scores)

    def test_what_resembles_nothing_finds_nothing(self, indexes: Indexes) -> None:
        """A word that resembles no stored word matches nothing, not the nearest word."""
        assert ids(filled(indexes).keyword("xylophone", fuzzy=True)) == []

    @needs(lambda can: can.hybrid != "no")
    def test_the_keyword_leg_of_a_hybrid_search_is_fuzzy_too(self, indexes: Indexes) -> None:
        """The misspelled word is found by the keyword leg."""
        response = filled(indexes).hybrid([1, 0], "elefants", fuzzy=True)
        hit_ids = [hit.chunk.chunk_id for hit in response.hits if "keyword" in hit.explanation.legs]
        assert hit_ids == ["herd"]


@needs(lambda can: can.keyword != "no" and not can.fuzzy)
class NotFuzzyTests(Suite):
    """Providers without the capability `fuzzy`."""

    def test_fuzzy_search_is_refused(self, indexes: Indexes) -> None:
        """The caller gets an error; an exact search instead would be a silent fallback."""
        with pytest.raises(InvalidRequest) as caught:
            filled(indexes).keyword("elefants", fuzzy=True)
        assert caught.value.field == "fuzzy"
