"""Tokenizers count as their models do and cut without splitting characters."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rs_bpe.bpe import openai

from corral.api.errors import InvalidRequest
from corral.providers.text.tokens import (
    MAX_CHARACTERS_PER_TOKEN,
    TOKENIZERS,
    own_tokenizer,
    seam,
    tokenizer,
)

from ...growth import growth

TEXTS = st.text(
    alphabet=st.one_of(st.sampled_from("ab \n\t.'1é中😀\u0301x"), st.characters(codec="utf-8")),
    max_size=40,
)


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("cl100k", "hello world", 2),
        ("cl100k", "antidisestablishmentarianism", 6),
        ("cl100k", "お誕生日おめでとう", 9),
        ("cl100k", "<|endoftext|>", 7),
        ("o200k", "お誕生日おめでとう", 8),
        ("bytes", "é😀", 6),
        ("cl100k", "", 0),
    ],
)
def test_counts_are_those_of_the_models(name: str, text: str, count: int) -> None:
    """Counts equal tiktoken's published ones; text that looks like a special token is text."""
    assert tokenizer(name).count(text) == count


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
def test_no_token_is_longer_than_said(name: str) -> None:
    """Cutting and context assembly skip text by this bound, unread."""
    table = getattr(openai, name)()
    tokens = [table.decode([number]) for number in range(100_000)]
    assert max(len(text) for text in tokens if text) == MAX_CHARACTERS_PER_TOKEN


@pytest.mark.parametrize("name", TOKENIZERS)
def test_cutting_a_huge_text_reads_its_start_only(name: str) -> None:
    """Ten megabytes are cut about as fast as a page, a thousandth of them."""

    def cut(text: str) -> None:
        assert tokenizer(name).cut(text, 50).startswith("cattle ")

    assert growth(cut, "cattle " * 1500, "cattle " * 1_500_000) < 50


def test_an_unknown_tokenizer_is_refused() -> None:
    """The error names the field and every valid name."""
    with pytest.raises(InvalidRequest) as caught:
        tokenizer("p50k")
    assert caught.value.field == "tokenizer"
    assert all(name in str(caught.value) for name in TOKENIZERS)


def test_one_object_serves_all_threads() -> None:
    """A tokenizer is made once, and many threads get the counts that one gets."""
    texts = [f"text {n} ünd 中文 " * 20 for n in range(200)]
    alone = [tokenizer().count(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda text: tokenizer().count(text), texts)) == alone
    assert tokenizer("cl100k") is tokenizer()


@given(st.sampled_from(TOKENIZERS), TEXTS, st.integers(-1, 30))
def test_a_cut_is_a_prefix_within_the_limit(name: str, text: str, most: int) -> None:
    """A cut starts the text, costs at most the limit, and is all of it where that fits."""
    counter = tokenizer(name)
    cut = counter.cut(text, most)
    assert text.startswith(cut)
    assert counter.count(cut) <= max(most, 0)
    assert cut == text or counter.count(text) > most


@given(st.sampled_from(TOKENIZERS), TEXTS, st.integers(0, 12))
def test_no_longer_cut_is_possible(name: str, text: str, most: int) -> None:
    """What is cut off could not have stayed: one more token or character exceeds the limit.

    For BPE longer prefixes that end within a token do not count.
    """
    counter = tokenizer(name)
    cut = counter.cut(text, most)
    if name == "bytes":
        assert cut == text or counter.count(text[: len(cut) + 1]) > most
    elif cut != text:
        tail = counter.count(text) - counter.count(cut)
        assert tail > 0
        assert counter.count(cut) > most - 5, "a character has at most four tokens"


@given(st.sampled_from(TOKENIZERS), TEXTS, st.integers(-1, 30))
def test_counting_within_a_limit_is_counting(name: str, text: str, most: int) -> None:
    """`count_within` is the count, or None above the limit."""
    count = tokenizer(name).count(text)
    assert tokenizer(name).count_within(text, most) == (count if count <= most else None)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_lone_surrogate_is_one_character(name: str) -> None:
    """Text that has no UTF-8 form is counted and cut, not an error."""
    counter = tokenizer(name)
    assert counter.count("a\ud800b") == counter.count("a?b")
    assert "a\ud800b".startswith(counter.cut("a\ud800b", 1))


@settings(max_examples=500)
@given(st.sampled_from(TOKENIZERS), TEXTS, st.sampled_from("aRz09["), TEXTS)
def test_costs_add_up_at_a_seam(name: str, left: str, first: str, right: str) -> None:
    """Behind a line break, before a letter, digit or `[`, parts cost joined what they cost alone.

    If this fails: a context that is counted in parts may exceed its budget.
    """
    left, right = left + "\n", first + right
    counter = tokenizer(name)
    assert counter.adds_up
    assert seam(left, right)
    assert counter.count(left + right) == counter.count(left) + counter.count(right)


@pytest.mark.parametrize(
    ("left", "right"), [("}\n", "/a"), ("a", "b"), ("a ", "b"), ("\n", " a"), ("\n", "é"), ("", "")]
)
def test_elsewhere_there_is_no_seam(left: str, right: str) -> None:
    """`}`, a line break and `/` are one token of o200k; of other places nothing is claimed."""
    assert not seam(left, right)


# --- an embedder's own -----------------------------------------------------------------------


class Words:
    """A model whose tokens are words; white space is free."""

    read = 0

    def token_ends(self, text: str) -> list[int]:
        self.read += len(text)
        return [found.end() for found in re.finditer(r"\S+", text)]


def test_an_embedders_tokenizer_has_no_seams() -> None:
    """Of an unknown vocabulary nothing is assumed: its texts are counted joined."""
    counter = own_tokenizer(Words())
    assert (counter.name, counter.adds_up) == ("embedder", False)
    assert counter.count("hay is  dry\n") == 3


@given(TEXTS, st.integers(-1, 12))
def test_an_embedders_tokenizer_cuts_and_counts(text: str, most: int) -> None:
    """A cut starts the text and is within the limit; counting within a limit is counting."""
    counter = own_tokenizer(Words())
    count, cut = counter.count(text), counter.cut(text, most)
    assert text.startswith(cut)
    assert counter.count(cut) <= max(most, 0)
    assert most < 1 or counter.count(cut) == min(count, most)
    assert counter.count_within(text, most) == (count if count <= most else None)


def test_an_embedders_tokenizer_reads_the_start_of_a_huge_text() -> None:
    """Ten megabytes are refused, and cut, after some kilobytes.

    If this fails: a chunk that nobody will see makes the server work for seconds.
    """
    words = Words()
    counter = own_tokenizer(words)
    assert counter.count_within("cattle " * 1_500_000, 50) is None
    assert counter.cut("cattle " * 1_500_000, 50) == "cattle " * 49 + "cattle"
    assert words.read < 20_000
