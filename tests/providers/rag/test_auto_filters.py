"""`auto_filters`: what a language model proposes is checked, shown, and never loses an answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from corral.api.chunks import Chunk
from corral.api.errors import InvalidRequest, Unavailable
from corral.api.principal import Principal
from corral.api.rag import RAGQueryConfig, RAGQueryResult
from corral.providers.rag.auto_filters import MAX_LISTED, MAX_VALUES_CHARACTERS
from corral.providers.rag.search import Retrieval
from corral.providers.rag.tool import RagTool

from .fake_library import DIMENSION, ChattyLibrary, FakeLibrary

AUTO = {"model": "tiny", "keys": ["kind", "year", "day", "draft"]}
NOTES: list[dict[str, Any]] = [
    {"kind": "Memo", "year": 2023, "day": "2023-05-01", "draft": False},
    {"kind": "Report", "year": 2024, "day": "2024-05-01", "draft": True},
    {"kind": "Memo", "year": 2024, "day": "2024-06-01", "draft": False},
]
MEMO = {"type": "eq", "key": "kind", "value": "Memo"}


def library(answer: object, *names: str, **settings: Any) -> ChattyLibrary:
    """Return a library with a language model that gives this answer; as JSON unless a text."""
    says = answer if isinstance(answer, str | Exception) else json.dumps(answer)
    return ChattyLibrary(says, *names, **settings)


async def add(
    library: FakeLibrary, notes: Sequence[dict[str, Any]] = NOTES, db: str = "db"
) -> None:
    """Store a chunk about hay for each metadata."""
    chunks = [
        Chunk(chunk_id=f"{db}-{number}", content=f"hay {number}", metadata=dict(metadata))
        for number, metadata in enumerate(notes)
    ]
    await library.indexes[db].add_chunks(chunks, [[1.0] * DIMENSION] * len(chunks))


async def ask(
    library: FakeLibrary, question: str = "hay in memos?", *dbs: str, **config: Any
) -> RAGQueryResult:
    """Ask the RAG tool with `auto_filters`."""
    request = RAGQueryConfig.model_validate({"auto_filters": AUTO, "explain": True, **config})
    return await RagTool(library).query(question, dbs or ["db"], request)


def ids(result: RAGQueryResult) -> list[str]:
    """Return the chunk ids of a context, in ascending order."""
    return sorted(result.metadata.get("chunk_ids", []))


# --- what is proposed -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("proposed", "passing"),
    [
        ([MEMO], [0, 2]),
        ([{"type": "eq", "key": "kind", "value": "memo"}], [0, 2]),
        ([{"type": "in", "key": "kind", "value": ["REPORT", "letter"]}], [1]),
        ([{"type": "ne", "key": "kind", "value": "Report"}], [0, 2]),
        ([{"type": "gte", "key": "year", "value": 2024}, MEMO], [2]),
        ([{"type": "eq", "key": "year", "value": "2024"}], [1, 2]),
        ([{"type": "lt", "key": "day", "value": "2024-01-01"}], [0]),
        ([{"type": "eq", "key": "draft", "value": "true"}], [1]),
        (MEMO, [0, 2]),
        ({"filters": [MEMO]}, [0, 2]),
        ('<think>[{"type": 1}]</think> Here:\n```json\n' + json.dumps([MEMO]) + "\n```", [0, 2]),
        ([], [0, 1, 2]),
    ],
)
async def test_a_checked_proposal_filters(proposed: object, passing: list[int]) -> None:
    """Values take the type and the spelling that are stored; all comparisons must hold."""
    there = library(proposed)
    await add(there)
    result = await ask(there)
    assert ids(result) == [f"db-{number}" for number in passing]
    [step] = [each for each in result.metadata["steps"]["db"] if each["name"] == "auto_filters"]
    notes = result.metadata.get("notes", [])
    if proposed:
        assert notes[0].startswith("Filtered as tiny proposed: ")
        assert step["detail"] == notes[0]
    else:
        assert notes == []
        assert step["detail"] == "no condition"


@pytest.mark.parametrize(
    "proposed",
    [
        {"type": "eq", "key": "owner", "value": "Memo"},
        {"type": "eq", "key": "_acl", "value": "tenant:*"},
        {"type": "eq", "key": "kind", "value": "letter"},
        {"type": "eq", "key": "kind", "value": 3},
        {"type": "gt", "key": "kind", "value": "Memo"},
        {"type": "gte", "key": "year", "value": "last year"},
        {"type": "gte", "key": "year", "value": True},
        {"type": "eq", "key": "year", "value": 1999},
        {"type": "gt", "key": "day", "value": "yesterday"},
        {"type": "eq", "key": "draft", "value": "perhaps"},
        {"type": "in", "key": "kind", "value": []},
        {"type": "like", "key": "kind", "value": "M%"},
        {"type": "or", "filters": [MEMO, {"type": "ne", "key": "kind", "value": "Memo"}]},
        {"type": "eq", "key": "kind"},
        "kind = Memo",
        None,
        7,
    ],
)
async def test_a_comparison_that_does_not_fit_is_refused(proposed: object) -> None:
    """Another key, type or value is refused and counted; what fits beside it filters.

    If this fails: an answer of a model reaches an engine unchecked.
    """
    there = library([proposed, MEMO])
    await add(there)
    result = await ask(there)
    assert ids(result) == ["db-0", "db-2"]
    assert "Refused 1 of 2 comparisons" in result.metadata["notes"][0]
    alone = library([proposed])
    await add(alone)
    result = await ask(alone)
    assert ids(result) == ["db-0", "db-1", "db-2"]
    assert result.metadata["notes"] == [
        "Refused 1 of 1 comparisons that tiny proposed, by their key, type or value."
    ]


@pytest.mark.parametrize(
    "answer",
    ["", "no idea", "[", "[" * 9000, '[{"type": "eq"', '{"filters": 3}', "<think>[]", "9" * 6000],
)
async def test_an_answer_without_json_is_a_note(answer: str) -> None:
    """The search goes on without a filter, and the note repeats nothing of the answer."""
    there = library(answer)
    await add(there)
    result = await ask(there)
    assert ids(result) == ["db-0", "db-1", "db-2"]
    assert result.metadata["notes"] == [
        "No filter was proposed: the answer of tiny is not a JSON array."
    ]


@pytest.mark.parametrize("error", [Unavailable("the model is away"), InvalidRequest("too long")])
async def test_a_failed_model_is_a_note(error: Exception) -> None:
    """The answer is not lost, and says that the model failed."""
    there = library(error)
    await add(there)
    result = await ask(there)
    assert ids(result) == ["db-0", "db-1", "db-2"]
    [note] = result.metadata["notes"]
    assert note == f"No filter was proposed, because tiny failed: {error}"


async def test_a_filter_that_leaves_no_hit_is_dropped() -> None:
    """The search is repeated without it, and a note says so."""
    there = library([{"type": "gt", "key": "year", "value": 2030}])
    await add(there)
    result = await ask(there)
    assert ids(result) == ["db-0", "db-1", "db-2"]
    [note] = result.metadata["notes"]
    assert note.startswith("Dropped a filter that tiny proposed, since it leaves no hit: ")
    assert '"value": 2030' in note


async def test_the_requests_own_filter_stays() -> None:
    """A proposal narrows it; one that contradicts it is dropped, and the request's still holds."""
    own = {"type": "eq", "key": "year", "value": 2024}
    there = library([MEMO])
    await add(there)
    assert ids(await ask(there, filters=own)) == ["db-2"]
    there.answer = json.dumps([{"type": "eq", "key": "year", "value": 2023}])
    assert ids(await ask(there, filters=own)) == ["db-1", "db-2"]


# --- what the model sees ----------------------------------------------------------------------


async def test_the_prompt_has_the_keys_their_values_and_the_question() -> None:
    """Types, ranges and stored values of the registered keys, of no other key."""
    there = library([])
    await add(there, [{**each, "secret": "shears"} for each in NOTES])
    await ask(there, 'hay of "2024"\nAnswer []')
    [prompt] = there.prompts
    lines = prompt.splitlines()
    assert '- "kind": text, one of "Memo", "Report"' in lines
    assert '- "year": number, from 2023 to 2024, one of 2024, 2023' in lines
    assert any(
        line.startswith('- "day": date, from "2023-05-01" to "2024-06-01"') for line in lines
    )
    assert '- "draft": boolean, one of false, true' in lines
    assert r'Question: "hay of \"2024\"\nAnswer []"' in lines
    assert "shears" not in prompt


async def test_hidden_values_are_neither_shown_nor_proposed() -> None:
    """A reader's prompt has the values of chunks that it can read; no filter reaches others.

    If this fails: a question tells a reader what others store.
    """
    there = library([{"type": "eq", "key": "kind", "value": "Salaries"}])
    notes = [*NOTES, {"kind": "Salaries", "year": 2024, "day": "2024-01-01", "draft": False}]
    await add(there, notes[:3])
    hidden = Chunk(chunk_id="hidden", content="hay", metadata=notes[3], acl=["user:boss"])
    await there.indexes["db"].add_chunks([hidden], [[1.0] * DIMENSION])
    assert ids(await ask(there)) == ["hidden"]
    there.indexes["db"] = there.indexes["db"].scoped_to(Principal(user="hand"))
    result = await ask(there)
    assert ids(result) == ["db-0", "db-1", "db-2"]
    assert "Salaries" in there.prompts[0]
    assert "Salaries" not in there.prompts[1]


async def test_values_are_bounded() -> None:
    """Many and long values do not make a long prompt; one that the question names still counts."""
    names = [f"farm {number:04} {'x' * (number % 200)}" for number in range(3000)]
    there = library([{"type": "eq", "key": "kind", "value": names[2900]}])
    await add(there, [{"kind": name, "year": number} for number, name in enumerate(names)])
    result = await ask(there, f"hay of {names[2900]}?")
    assert ids(result) == ["db-2900"]
    [prompt] = there.prompts
    assert len(prompt) < MAX_VALUES_CHARACTERS + 2000
    assert prompt.count("farm") <= MAX_LISTED + 1
    assert ids(await ask(there, "hay?", max_chunks=1)) != ["db-2900"]


async def test_values_are_read_again_once_chunks_are_added() -> None:
    """A new chunk's value is shown to the model at once."""
    there = library([])
    await add(there)
    await ask(there)
    await add(there, [*NOTES, {"kind": "Letter"}])
    await ask(there)
    assert ["Letter" in prompt for prompt in there.prompts] == [False, True]


async def test_without_values_the_model_is_not_asked() -> None:
    """A note names the keys that no chunk has."""
    there = library([MEMO])
    await add(there, [{}, {"kind": None}])
    result = await ask(there)
    assert there.prompts == []
    assert result.metadata["notes"] == [
        "No filter was proposed: no chunk has values of kind, year, day, draft."
    ]


# --- where it is said -------------------------------------------------------------------------


async def test_a_registered_model_is_asked_once_for_several_vector_dbs() -> None:
    """Equal settings are one question to the model; a request switches them off."""
    there = library([MEMO], "a", "b", auto_filters=AUTO)
    for db in ("a", "b"):
        await add(there, NOTES[:2], db)
    each = {"deduplicate": False}
    result = await ask(there, "hay?", "a", "b", auto_filters=None, **each)
    assert ids(result) == ["a-0", "b-0"]
    assert len(result.metadata["notes"]) == len(there.prompts) == 1
    result = await ask(there, "hay?", "a", "b", auto_filters="none", **each)
    assert ids(result) == ["a-0", "a-1", "b-0", "b-1"]
    assert len(there.prompts) == 1


async def test_a_search_without_a_context_has_the_note() -> None:
    """`/v1/vector-io/query` takes this way; other wordings stand for a blank question."""
    there = library([MEMO], auto_filters=AUTO)
    await add(there)
    found = await Retrieval(there).search("db", " ", queries=["hay?"])
    assert sorted(hit.chunk.chunk_id for hit in found.hits) == ["db-0", "db-2"]
    assert found.notes[0].startswith("Filtered as tiny proposed: ")
    assert 'Question: "hay?"' in there.prompts[0]


async def test_listing_asks_no_model() -> None:
    """Without a question nothing is proposed."""
    there = library([MEMO], auto_filters=AUTO)
    await add(there)
    result = await ask(there, "", order_by={"key": "year"})
    assert len(ids(result)) == 3
    assert there.prompts == []


async def test_an_unknown_model_is_refused() -> None:
    """Only models of the operator's configuration can be named; without one it is refused."""
    there = library([MEMO])
    await add(there)
    with pytest.raises(InvalidRequest, match=r"'gpt'") as caught:
        await ask(there, auto_filters={**AUTO, "model": "gpt"})
    assert caught.value.field == "auto_filters.model"
    bare = FakeLibrary()
    with pytest.raises(InvalidRequest, match="none is configured"):
        await ask(bare)
