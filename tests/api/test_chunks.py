"""Chunks: what is stripped, refused and derived before any engine sees a chunk."""

from __future__ import annotations

import hashlib
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from corral.api.chunks import Chunk, ChunkMetadata, derive_chunk_id, last_of_each
from corral.api.rag import RAGDocument
from corral.api.wire import MAX_ID_LENGTH, MAX_METADATA_DEPTH, strip_nul


def error_of(**fields: Any) -> str:
    """Return the message with which a chunk is refused."""
    with pytest.raises(ValidationError) as caught:
        Chunk(**fields)
    return str(caught.value)


# --- NUL and other text that engines choke on -----------------------------------------------------


@pytest.mark.parametrize(
    ("given_value", "expected"),
    [
        ("a\0b", "ab"),
        ("\0", ""),
        ("plain", "plain"),
        ({"k\0": "v\0"}, {"k": "v"}),
        (["a\0", {"b": "\0c"}], ["a", {"b": "c"}]),
        (("a\0",), ["a"]),
        (1.5, 1.5),
        (None, None),
        (True, True),
    ],
)
def test_nul_is_removed_from_every_string(given_value: Any, expected: Any) -> None:
    """NUL vanishes from strings at any depth, keys included; other values stay as they are."""
    assert strip_nul(given_value) == expected


def test_a_chunk_holds_no_nul_anywhere() -> None:
    """Content, metadata and the record of the chunk's origin all lose their NULs.

    If this fails: an engine that ends strings at NUL will lose the text behind it.
    """
    chunk = Chunk(
        content="sun\0shine",
        metadata={"ti\0tle": "a\0", "tags": ["b\0"]},
        chunk_metadata=ChunkMetadata(source="x\0"),
    )
    assert "\0" not in chunk.model_dump_json()
    assert "\\u0000" not in chunk.model_dump_json()
    assert chunk.content == "sunshine"
    assert chunk.metadata == {"title": "a", "tags": ["b"]}


@pytest.mark.parametrize("name", ["chunk_id", "document_id"])
def test_ids_in_the_chunk_metadata_obey_the_rules_of_ids(name: str) -> None:
    """An id that arrives inside chunk_metadata holds no NUL and is at most 255 characters."""
    chunk = Chunk(content="x", chunk_metadata={name: "ab"})
    assert chunk.chunk_id == "ab" if name == "chunk_id" else chunk.document_id == "ab"
    for refused in ("a\0b", "a" * 256):
        assert name in error_of(content="x", chunk_metadata={name: refused})


@pytest.mark.parametrize(
    "metadata",
    [{"k\0": 1, "k": 2}, {"deep": [{"\0": 1, "": 2}]}, {"document_id": "a", "document_id\0": "b"}],
)
def test_no_two_keys_become_one(metadata: dict[str, Any]) -> None:
    """Metadata where dropping NUL would lose a value is refused.

    If this fails: a chunk is stored without a value, or under the document of another.
    """
    assert "two keys are the same without NUL" in error_of(content="x", metadata=metadata)


def test_a_document_id_in_the_metadata_holds_no_nul() -> None:
    """metadata.document_id is an id: with a NUL it is refused, where other values lose theirs.

    If this fails: the documents "nul" NUL "id" and "nulid" are one, and one replaces the other.
    """
    for name, value in [
        ("document_id", "nul\0id"),
        ("document\0_id", "nul\0id"),
        ("document_id", "\ud800"),
    ]:
        assert "document_id" in error_of(content="x", metadata={name: value})
    with pytest.raises(ValidationError, match="NUL"):
        RAGDocument(document_id="nul\0id", content="x")


@pytest.mark.parametrize(
    "fields",
    [{"content": "a\ud800b"}, {"content": "a", "metadata": {"k": ["\udfff"]}}],
    ids=["content", "metadata"],
)
def test_lone_surrogates_never_reach_an_engine(fields: dict[str, Any]) -> None:
    r"""JSON's "\ud800" is no text: it is replaced or refused, since no engine can encode it."""
    try:
        chunk = Chunk(**fields)
    except ValidationError:
        return
    for text in (chunk.content, *chunk.metadata.get("k", [])):
        text.encode("utf-8")


# --- content --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        ({"type": "text", "text": "item"}, "item"),
        (["one", {"type": "text", "text": "two"}], "one\ntwo"),
        ([{"type": "text", "text": "one"}], "one"),
        ([["nested"], "list"], "nested\nlist"),
        ('it\'s "quoted" 天气 🙂', 'it\'s "quoted" 天气 🙂'),
        (" ", " "),
    ],
)
def test_interleaved_content_becomes_text(content: Any, text: str) -> None:
    """A string, a text item or a list of either is one text, its items joined by a newline."""
    assert Chunk(content=content).content == text


@pytest.mark.parametrize(
    "content",
    [
        {"type": "image", "image": {"url": {"uri": "http://x"}}},
        ["text", {"type": "image", "image": {}}],
    ],
)
def test_images_are_refused_and_the_message_says_why(content: Any) -> None:
    """An image among the content is refused: it would be stored as an empty text."""
    assert "images cannot be searched" in error_of(content=content)


@pytest.mark.parametrize(
    "content",
    [
        None,
        5,
        {},
        {"type": "text"},
        {"type": "text", "text": 5},
        {"type": "video", "text": "x"},
        {"text": "no type"},
        ["text", 5],
        [None],
        {"type": "text", "text": "x", "surprise": 1},
    ],
)
def test_content_that_is_no_text_is_refused(content: Any) -> None:
    """What is neither a string nor a whole text item is refused, not turned into some text."""
    assert "content" in error_of(content=content)


@pytest.mark.parametrize("content", ["", "\0", [], {"type": "text", "text": ""}])
def test_empty_content_is_refused(content: Any) -> None:
    """A chunk without text is refused, also when only NUL made it look like one."""
    assert "content is empty" in error_of(content=content)


# --- metadata -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"a": 1.5, "b": [1.5, 2], "c": {"d": -0.0}},
        {"int": 2**63 - 1, "bool": True, "null": None, "text": "å"},
        {"nested": {"list": [{"x": [1]}]}},
        {"": "empty key"},
    ],
)
def test_json_metadata_is_kept_as_given(metadata: dict[str, Any]) -> None:
    """Any JSON object comes back equal, floats and nested values included."""
    assert Chunk(content="x", metadata=metadata).metadata == metadata


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", ["scalar", "list", "nested"])
def test_numbers_that_are_not_finite_are_refused_in_metadata(bad: float, place: str) -> None:
    """NaN and infinity are refused at any depth: they are no JSON, and no two engines agree."""
    metadata = {"scalar": {"a": bad}, "list": {"a": [1.0, bad]}, "nested": {"a": [{"b": bad}]}}
    assert "finite" in error_of(content="x", metadata=metadata[place])


def test_metadata_beyond_a_number_is_refused() -> None:
    """An integer too large for a double is refused here, not in the middle of a filter."""
    error_of(content="x", metadata={"a": 10**400})


def test_deeply_nested_metadata_is_refused() -> None:
    """Nesting is bounded: a value that exhausts the stack is a refusal and not a crash."""
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    error_of(content="x", metadata={"a": deep})
    allowed: list[Any] = []
    for _ in range(MAX_METADATA_DEPTH - 1):
        allowed = [allowed]
    assert Chunk(content="x", metadata={"a": allowed}).metadata == {"a": allowed}


def test_the_callers_metadata_is_not_changed() -> None:
    """Filling in the document id touches the chunk's own dict, not the one that was passed."""
    metadata = {"a": "b"}
    chunk = Chunk(content="x", metadata=metadata, chunk_metadata={"document_id": "d"})
    assert metadata == {"a": "b"}
    assert chunk.metadata == {"a": "b", "document_id": "d"}


# --- ids ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("absent", [{}, {"chunk_id": None}, {"chunk_id": ""}])
def test_an_absent_chunk_id_is_derived_from_document_and_text(absent: dict[str, Any]) -> None:
    """No id means the derived one: 32 hex digits, equal for equal document and text."""
    chunk = Chunk(content="text", metadata={"document_id": "d"}, **absent)
    assert chunk.chunk_id == derive_chunk_id("d", "text")
    assert len(chunk.chunk_id) == 32
    assert int(chunk.chunk_id, 16) >= 0


def test_derived_ids_differ_by_document_text_and_position() -> None:
    """Equal text in two documents, or twice in one document, stays two chunks.

    If this fails: one of them overwrites the other, as happens in servers that hash only the text.
    """
    ids = {
        derive_chunk_id("a", "text"),
        derive_chunk_id("b", "text"),
        derive_chunk_id("a", "other"),
        derive_chunk_id("a", "text", 1),
        derive_chunk_id("", "text"),
    }
    assert len(ids) == 5


def test_the_derived_id_is_a_fixed_function() -> None:
    """Ids are stable over releases: stored chunks are found again by re-inserting them."""
    expected = hashlib.sha256(b"1:d:0:text").hexdigest()[:32]
    assert derive_chunk_id("d", "text") == expected


@given(a=st.text(), b=st.text(), c=st.text(), d=st.text())
def test_parts_of_a_derived_id_never_run_into_each_other(a: str, b: str, c: str, d: str) -> None:
    """Two different pairs of document and text have two ids, wherever the colons stand."""
    assert ((a, b) == (c, d)) == (derive_chunk_id(a, b) == derive_chunk_id(c, d))


def test_a_given_chunk_id_wins_over_the_recorded_one_and_that_over_the_derived_one() -> None:
    """Precedence: chunk_id, then chunk_metadata.chunk_id, then the derived id."""
    recorded = {"chunk_id": "recorded"}
    assert Chunk(content="x", chunk_id="given", chunk_metadata=recorded).chunk_id == "given"
    assert Chunk(content="x", chunk_metadata=recorded).chunk_id == "recorded"


@pytest.mark.parametrize("chunk_id", ["a/b", "../x", "it's", '"', "🙂", "a" * MAX_ID_LENGTH, " "])
def test_any_text_of_1_to_255_characters_is_an_id(chunk_id: str) -> None:
    """Slashes, dots, quotes, emoji and blanks are ordinary characters of an id."""
    assert Chunk(content="x", chunk_id=chunk_id).chunk_id == chunk_id


@pytest.mark.parametrize("chunk_id", ["a" * 256, "\0", "nul\0id", 5, ["a"], "a\ud800"])
def test_other_ids_are_refused(chunk_id: Any) -> None:
    """Too long, with a NUL, no string or no Unicode: refused, not cut or converted."""
    assert "chunk_id" in error_of(content="x", chunk_id=chunk_id)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"metadata": {"document_id": "d"}}, "d"),
        ({"metadata": {"document_id": 7}}, "7"),
        ({"chunk_metadata": {"document_id": "r"}}, "r"),
        ({"metadata": {"document_id": "d"}, "chunk_metadata": {"document_id": "r"}}, "d"),
    ],
)
def test_document_id_comes_from_the_metadata(fields: dict[str, Any], expected: str | None) -> None:
    """metadata.document_id groups chunks; the recorded one fills it only where it is absent."""
    assert Chunk(content="x", **fields).document_id == expected


def test_last_of_each_names_the_survivors_of_an_upsert() -> None:
    """Of chunks with one id the last counts, and the order of first appearance is kept."""
    chunks = [Chunk(content=text, chunk_id=text[0]) for text in ("a1", "b1", "a2")]
    assert last_of_each(chunks) == {"a": 2, "b": 1}


# --- the shape ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields", [{"ttl": 5}, {"stored_chunk_id": "a"}, {"chunk_metadata": {"surprise": 1}}]
)
def test_unknown_keys_are_refused_and_named(fields: dict[str, Any]) -> None:
    """A key that nobody knows is an error with its name, never ignored."""
    key = "surprise" if "chunk_metadata" in fields else next(iter(fields))
    assert key in error_of(content="x", **fields)


def test_a_chunk_survives_json() -> None:
    """A chunk read back from its own JSON is equal to it."""
    chunk = Chunk(
        content="x", metadata={"a": [1, 2.5, "b", True, None]}, embedding=[0.5, 1.0],
        chunk_metadata=ChunkMetadata(source="s", chunk_window="0-5", content_token_count=3),
    )  # fmt: skip
    assert Chunk.model_validate_json(chunk.model_dump_json()) == chunk


@pytest.mark.parametrize("value", [b"bytes", object(), {1, 2}])
def test_metadata_is_json(value: object) -> None:
    """What is no JSON value is refused on the way in, not when a provider stores it."""
    assert "not a JSON value" in error_of(content="x", metadata={"key": [value]})


def test_a_stored_chunk_is_what_pydantic_makes() -> None:
    """A chunk read from an engine equals one that was checked, also when it is copied or dumped.

    If this fails: `Chunk` has a new field, or pydantic keeps more of a model; `Chunk.stored` sets
    what it knew before.
    """
    record = ChunkMetadata(page=3)
    stored = Chunk.stored("c", "text", {"a": 1}, record, [1.0, 2.0])
    checked = Chunk(
        chunk_id="c", content="text", metadata={"a": 1}, chunk_metadata=record, embedding=[1, 2]
    )
    assert stored == checked
    assert list(vars(stored)) == list(Chunk.model_fields)
    assert stored.model_fields_set == checked.model_fields_set
    for chunk in (stored, stored.model_copy(), pickle.loads(pickle.dumps(stored))):
        assert repr(chunk) == repr(checked)
        assert chunk.model_dump_json() == checked.model_dump_json()
