"""A text in parts costs what it costs joined, to the token."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.providers.rag.costs import Costs
from corral.providers.rag.digest_cache import MIN_CHARACTERS, DigestCache
from corral.providers.text.tokens import TOKENIZERS, Tokenizer, own_tokenizer, tokenizer

PARTS = st.lists(
    st.lists(
        st.sampled_from(
            [
                "a",
                "[1] ",
                "Result 3",
                "\n",
                "\n\n",
                "}",
                "/",
                " ",
                "'s",
                "中",
                "😀",
                "\ud800",
                "x" * 99,
            ]
        ),
        max_size=6,
    ).map("".join),
    max_size=12,
)


class Letters:
    """A model whose tokens are characters, but for a line break before `a`: the two are one."""

    def token_ends(self, text: str) -> list[int]:
        return [at + 1 for at in range(len(text)) if text[at : at + 2] != "\na"]


@settings(max_examples=400)
@given(st.sampled_from([*TOKENIZERS, "embedder"]), PARTS, st.integers(-1, 60))
def test_parts_cost_what_the_whole_costs(name: str, parts: list[str], most: int) -> None:
    """For any parts, with seams between them or not; within a limit, or not at all.

    If this fails: a context exceeds its budget by the tokens that joining adds.
    """
    counter: Tokenizer = own_tokenizer(Letters()) if name == "embedder" else tokenizer(name)
    costs, whole = Costs(counter), counter.count("".join(parts))
    assert costs.within(parts, most) == (whole if whole <= most else None)
    assert costs.of(parts) == whole
    assert Costs(counter).of(parts) == whole
    assert costs.within(parts, most) == (whole if whole <= most else None)


def test_nothing_is_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands between two seams is counted once, then known; in other contexts, too."""
    counter = tokenizer("o200k")
    counted: list[str] = []
    plain = type(counter).count

    def count(self: Any, text: str) -> int:
        counted.append(text)
        return plain(self, text)

    monkeypatch.setattr(type(counter), "count", count)
    unit = f"Content: {'grass that nobody has counted yet ' * 9}\n"
    for _ in range(3):
        costs = Costs(counter)
        for number in range(3):
            costs.of([f"Result {number}\n", unit, "Metadata: {}\n"])
    assert counted.count(unit) == 1


def test_memory_is_bounded_and_knows_short_texts_not() -> None:
    """It forgets when it is full, and None is no answer to remember."""
    asked: list[str] = []

    def answer(text: str) -> int | None:
        asked.append(text[-1])
        return None if text.endswith("n") else len(text)

    memory: DigestCache[int | None] = DigestCache(max_texts=3)
    texts = {last: "x" * MIN_CHARACTERS + last for last in "abcdn"}
    for last in "ababnnabcaabcda":
        assert memory.of(texts[last], answer) == (None if last == "n" else MIN_CHARACTERS + 1)
    assert "".join(asked) == "abnncda"
    assert memory.of("short", answer) == memory.of("short", answer) == 5
    assert asked.count("t") == 2
