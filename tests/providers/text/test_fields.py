"""Which texts keyword search reads, and how much their terms count."""

from __future__ import annotations

from corral.api.chunks import Chunk
from corral.providers.text.analyzer import analyzer
from corral.providers.text.fields import chunk_terms, field_texts


def test_a_field_is_the_content_or_the_text_of_a_metadata_key() -> None:
    """Strings and numbers are text, lists hold several; booleans, null and objects are none.

    If this fails: providers that read fields by this module find other words than before.
    """
    chunk = Chunk(
        content="grass",
        metadata={
            "title": "green",
            "year": 1848,
            "tags": ["a", 2, True, None, {"x": "hidden"}, "b"],
            "draft": True,
            "nothing": None,
            "object": {"x": "hidden"},
            "content": "metadata of that name is not the content",
        },
    )
    fields = ["content", "title", "year", "tags", "draft", "nothing", "object", "absent"]
    assert list(field_texts(chunk, fields)) == [
        "grass", "green", "1848", "a\n2\nb", "", "", "", "",
    ]  # fmt: skip


def test_frequencies_are_weighted_and_lengths_are_not() -> None:
    """frequency = sum of weight x count over the fields; length = number of terms, repeats too."""
    chunk = Chunk(content="grass grows Grass", metadata={"title": "grass", "tags": ["hay", "hay"]})
    weights = {"content": 1.0, "title": 2.5, "tags": 0.5, "absent": 9.0}
    found = chunk_terms(chunk, weights, analyzer("simple"))
    assert found.frequencies == {"grass": 4.5, "grows": 1.0, "hay": 1.0}
    assert found.length == 6


def test_terms_are_those_of_the_analyzer() -> None:
    """Stop words are dropped and stems are counted together."""
    found = chunk_terms(
        Chunk(content="the running of the runs"), {"content": 1.0}, analyzer("english")
    )
    assert found.frequencies == {"run": 2.0}
    assert found.length == 2
