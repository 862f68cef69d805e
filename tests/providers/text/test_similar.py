"""Similar words: what counts as similar, and that signatures lose none of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import OSA

from corral.providers.text.similar import CUT, MAX_TERMS, MIN_LENGTH, Vocabulary, is_word


def vocabulary(*words: str) -> Vocabulary:
    """Return a vocabulary of these words."""
    made = Vocabulary()
    made.add(words)
    return made


def similar(term: str, *words: str) -> dict[str, float]:
    """Return the similar words of a term."""
    return dict(vocabulary(*words).similar([term]).get(term, []))


def test_similarity_by_hand() -> None:
    """1 - edits / longer length: one substitution, deletion, insertion or swap of neighbors is one
    edit; from 0.65 on a word is similar; the most similar come first, ties by spelling."""
    words = ["saddle", "sadle", "paddle", "sadlde", "saddles", "pedals", "saddel"]
    found = vocabulary(*words).similar(["saddle"])["saddle"]
    assert [word for word, _ in found] == ["saddles", "paddle", "saddel", "sadlde", "sadle"]
    assert [s for _, s in found] == pytest.approx([6 / 7, 5 / 6, 5 / 6, 5 / 6, 5 / 6])
    assert similar("saddle", "sddles") == {"sddles": pytest.approx(1 - 2 / 6)}
    assert similar("saddle", "paddel") == {"paddel": pytest.approx(1 - 2 / 6)}
    assert similar("stall", "stxyl") == {}


@pytest.mark.parametrize("term", ["cat", "4711", "e4711", "天气", "機械", "ภาษา", "서울", "ab"])
def test_short_words_numbers_and_scripts_without_spaces_have_no_similar_ones(term: str) -> None:
    """Below four letters half of all words are alike; an edit makes another number or character."""
    assert similar(term, "cats", "bat", "4712", "e4712", "天地", "機能", "ภาษี", "서을") == {}


def test_a_vocabulary_holds_words_only() -> None:
    """Numbers and codes are not found by words either; words of three letters are."""
    assert not any(map(is_word, ["ab", "x1000", "1000", "天气天气", "word7"]))
    assert all(map(is_word, ["cat", "møbel", "слово", "كتاب", "हिन्दी"]))
    assert similar("catt", "cat", "cat1", "c4tt") == {"cat": 0.75}


@pytest.mark.parametrize(
    ("term", "word"),
    [
        ("bøker", "bøkre"),
        ("слвоо", "слово"),
        ("كتبا", "كتاب"),
        ("हिन्दि", "हिन्दी"),
        ("größe", "grösse"),
    ],
)
def test_every_script_with_spaces_has_typos(term: str, word: str) -> None:
    """Norwegian, Russian, Arabic, Hindi and German words are found by misspelled ones."""
    assert word in similar(term, word)


WORDS = st.text("abcdeøш", min_size=3, max_size=12)


@settings(max_examples=300)
@given(WORDS.filter(lambda word: len(word) >= MIN_LENGTH), st.lists(WORDS, max_size=40))
def test_signatures_lose_nothing(term: str, words: list[str]) -> None:
    """What is found is what comparing the term with every word finds.

    If this fails: the bound of differing letters is too strict, and typos of some kind are lost.
    """
    compared = {word: OSA.normalized_similarity(term, word) for word in words if word != term}
    assert similar(term, *words) == {w: s for w, s in compared.items() if s >= CUT}


@given(st.lists(st.text(max_size=64), max_size=20), st.lists(st.text(max_size=64), max_size=5))
def test_no_text_does_harm(words: list[str], terms: list[str]) -> None:
    """Any strings can be added and asked for."""
    found = Vocabulary()
    found.add(word for word in words if "\0" not in word)
    for near in found.similar(term for term in terms if "\0" not in term).values():
        assert all(CUT <= similarity < 1 for _, similarity in near)


def test_a_vocabulary_grows() -> None:
    """In one step or in several, with repetitions: the same words in the same order."""
    words = [f"{a}{b}ddle" for a in "smrpw" for b in "aieo"]
    whole, grown = vocabulary(*words), vocabulary(*words[:7])
    grown.add([])
    grown.add(reversed(words))
    assert whole.similar(["saddle"]) == grown.similar(["saddle"])
    assert len(whole.similar(["saddle"])["saddle"]) > 5


def test_a_long_query_is_bounded() -> None:
    """The first terms that can be misspelled have similar ones, the rest of a query have none."""
    terms = [f"{a}{b}ddle" for a in "abcdefghij" for b in "aeiou"]
    found = vocabulary("saddle").similar(["no", "4711", *terms])
    assert list(found) == terms[:MAX_TERMS]
