"""Copying between backends: nothing is lost, changed or embedded anew, and it can be taken up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    Unavailable,
    UnknownProvider,
)
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.config import RunConfig
from corral.providers.copying import steps as copy_steps
from corral.providers.copying.copy import (
    CopyReport,
    copy_batch,
    copy_vector_db,
    verify_copy,
)
from corral.providers.copying.steps import CopyStep, batch_size
from corral.providers.embedding.hashing.embedder import HashingEmbedder
from corral.providers.stack import Stack

DIMENSION = 64
PROVIDERS = {
    "sqlite": "inline::sqlite",
    "memory": "inline::memory",
    "faiss": "inline::faiss",
    "qdrant": "inline::qdrant",
    "chroma": "inline::chroma",
    "milvus": "inline::milvus",
}
CONFIG = RunConfig.model_validate(
    {
        "providers": {
            "vector_io": [{"provider_id": i, "provider_type": t} for i, t in PROVIDERS.items()],
            "embedding": [
                {
                    "provider_id": "hashing",
                    "provider_type": "inline::hashing",
                    "config": {"dimension": DIMENSION},
                }
            ],
        }
    }
)
ODD: dict[str, Any] = {
    "document_id": "天气/🙂 'quoted\"",
    "integer": 1,
    "float": 1.0,
    "true": True,
    "null": None,
    "large": 2**53 + 1,
    "list": ["a", 1, 2.5, False, []],
    "nested": {"key with . and $": [1, {"x": None}]},
    "": "no key",
}
RECORD = ChunkMetadata(
    document_id="d", source="s", chunk_window="0-5", content_token_count=5, created_timestamp=7
)
Work = Callable[[Stack], Awaitable[Any]]


@asynccontextmanager
async def opened(home: Path) -> AsyncIterator[Stack]:
    """Open a stack with every provider that runs here without a service."""
    stack = Stack(CONFIG, home)
    try:
        yield stack
    finally:
        await stack.close()


async def run(home: Path, work: Work) -> Any:
    """Run one piece of work on a stack of its own."""

    async with opened(home) as stack:
        return await work(stack)


def chunks(number: int) -> list[Chunk]:
    """Return chunks of some words; the first ones are odd in id, text or metadata."""
    rng = np.random.default_rng(7)
    words = [f"word{n}" for n in range(60)]
    plain = [
        Chunk(
            chunk_id=f"c{n:04}",
            content=" ".join(rng.choice(words, 12)),
            metadata={"document_id": f"d{n // 5}", "odd": n % 2},
        )
        for n in range(number)
    ]
    odd = [
        Chunk(chunk_id="🙂\U0010ffff", content="天气 it's \\ % _ \n", metadata=ODD),
        Chunk(chunk_id="..", content="with a record", chunk_metadata=RECORD),
        Chunk(chunk_id="\ufffd;--", content="---"),
        Chunk(chunk_id="A", content="word1 again", metadata={"title": "word2"}),
    ]
    return [*odd, *plain[len(odd) :]]


def embeddings(number: int) -> NDArray[np.float64]:
    """Return one embedding a chunk, shape (number, 64), of lengths other than 1."""
    return np.random.default_rng(8).normal(size=(number, DIMENSION))


async def filled(stack: Stack, number: int = 40, **settings: Any) -> None:
    """Register the vector DB `source` on SQLite and fill it."""
    asked = {"vector_db_id": "source", "embedding_model": "hashing", "provider_id": "sqlite"}
    await stack.register(VectorDBRegistration.model_validate({**asked, **settings}))
    await (await stack.index("source")).add_chunks(chunks(number), embeddings(number))


async def stored(stack: Stack, vector_db_id: str) -> list[Chunk]:
    """Return all chunks with their embeddings, by id."""
    index = await stack.index(vector_db_id)
    return await index.get_chunks(await index.chunk_ids(), include_embeddings=True)


def assert_equal(one: Sequence[Chunk], other: Sequence[Chunk]) -> None:
    """See that chunks are equal, the kinds of metadata values included."""
    assert [c.model_dump(exclude={"embedding"}) for c in one] == [
        c.model_dump(exclude={"embedding"}) for c in other
    ]
    assert [repr(c.metadata) for c in one] == [repr(c.metadata) for c in other]
    np.testing.assert_allclose(
        np.array([c.embedding for c in one]), np.array([c.embedding for c in other]), atol=1e-6
    )


# --- what a copy is -------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["memory faiss", "chroma qdrant", "milvus sqlite"])
async def test_a_copy_is_equal_on_every_stop_of_a_journey(tmp_path: Path, way: str) -> None:
    """Chunks, embeddings and settings are the same after each of two moves.

    If this fails: compare what the provider stores of the field that differs.
    """

    async def work(stack: Stack) -> None:
        await filled(stack, search_mode="keyword", language="nb", vector_db_name="Værmelding")
        original = await stored(stack, "source")
        here = "source"
        for provider_id in way.split():
            there = f"on {provider_id}"
            report = await copy_vector_db(stack, here, there, provider_id=provider_id, batch=7)
            assert (report.seen, report.copied, report.checks.sampled) == (40, 40, 20)
            assert report.checks.vector_overlap == report.checks.keyword_overlap == 1.0
            assert_equal(await stored(stack, there), original)
            here = there

    await run(tmp_path, work)


async def test_the_registration_is_the_sources(tmp_path: Path) -> None:
    """Every setting that decides how chunks are indexed, split and searched."""
    settings: dict[str, Any] = {
        "search_mode": "vector",
        "ranker": {"type": "weighted", "alpha": 0.3},
        "language": "norwegian",
        "metric": "l2",
        "normalize": False,
        "field_weights": {"content": 1.0, "title": 3.0, "tags": 0.5},
        "chunking": {"chunk_size_in_tokens": 100, "overlap_in_tokens": 10},
        "vector_db_name": "a name",
    }

    async def work(stack: Stack) -> None:
        await filled(stack, **settings)
        await copy_vector_db(stack, "source", "target", provider_id="memory")
        source, target = await stack.vector_db("source"), await stack.vector_db("target")
        own = {"identifier", "provider_id", "provider_resource_id", "created_at"}
        assert target.model_dump(exclude=own) == source.model_dump(exclude=own)
        assert target.model_dump(include=set(settings)) == source.model_dump(include=set(settings))
        assert (target.identifier, target.provider_id) == ("target", "memory")
        await copy_vector_db(stack, "source", "beside it")
        assert (await stack.vector_db("beside it")).provider_id == "sqlite"

    await run(tmp_path, work)


async def test_nothing_is_embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedder is never asked: its vectors would not be those of other models' documents."""

    async def fail(*_: Any) -> Any:
        raise AssertionError("embedded")

    monkeypatch.setattr(HashingEmbedder, "embed_documents", fail)
    monkeypatch.setattr(HashingEmbedder, "embed_query", fail)

    async def work(stack: Stack) -> None:
        await filled(stack)
        await copy_vector_db(stack, "source", "target", provider_id="memory")

    await run(tmp_path, work)


async def test_an_empty_vector_db_is_copied(tmp_path: Path) -> None:
    """No chunks, one step, nothing to compare."""

    async def work(stack: Stack) -> None:
        asked = VectorDBRegistration(vector_db_id="source", embedding_model="hashing")
        await stack.register(asked)
        report = await copy_vector_db(stack, "source", "target", provider_id="memory")
        assert (report.seen, report.copied, report.checks.sampled) == (0, 0, 0)
        assert report.checks.vector_overlap is None

    await run(tmp_path, work)


# --- steps ----------------------------------------------------------------------------------------


async def test_progress_is_told_after_each_step(tmp_path: Path) -> None:
    """Steps of the size asked for, the last one short; their sum is the whole."""
    steps: list[CopyStep] = []

    async def work(stack: Stack) -> None:
        await filled(stack)
        await copy_vector_db(
            stack, "source", "target", provider_id="memory", batch=15, progress=steps.append
        )

    await run(tmp_path, work)
    assert [step.seen for step in steps] == [15, 15, 10]
    assert [step.done for step in steps] == [False, False, True]
    assert {step.total for step in steps} == {40}


def test_the_size_of_a_step_is_bounded() -> None:
    """A fiftieth of all, 500 to 10,000, so that there are 50 steps up to half a million."""
    assert [batch_size(n) for n in (0, 30_000, 500_000, 10**8)] == [500, 600, 10_000, 10_000]


async def listed(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, vector_db_id: str = "source"
) -> list[str]:
    """Return a list that will hold `after` of each time that the source lists its ids."""
    source = await stack.index(vector_db_id)
    list_ids, asked = source._chunk_ids, list[str]()

    async def counted(after: str, limit: int) -> Sequence[str]:
        asked.append(after)
        return await list_ids(after, limit)

    monkeypatch.setattr(source, "_chunk_ids", counted)
    return asked


async def test_ids_are_not_listed_for_each_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source lists its ids once for all steps of a copy, and once for its verification.

    If this fails: engines that cannot order ids read all of them for every step.
    """
    after_each_step: list[int] = []

    async def work(stack: Stack) -> None:
        await filled(stack)
        asked = await listed(stack, monkeypatch)
        await copy_vector_db(
            stack,
            "source",
            "target",
            provider_id="memory",
            batch=3,
            progress=lambda _: after_each_step.append(len(asked)),
        )
        assert len(asked) == 2  # the second time by the verification
        await copy_vector_db(stack, "source", "target")
        assert len(asked) == 4  # a new copy does not trust an old list

    await run(tmp_path, work)
    assert after_each_step == [1] * 14


async def test_long_lists_of_ids_come_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the ids are more than one list holds, steps are as large as ever and miss nothing."""
    steps: list[CopyStep] = []

    async def work(stack: Stack) -> None:
        await filled(stack)
        asked = await listed(stack, monkeypatch)
        monkeypatch.setattr(copy_steps, "MAX_IDS", 12)
        await copy_vector_db(
            stack, "source", "target", provider_id="memory", batch=5, progress=steps.append
        )
        assert asked[:-1] == ["", *(steps[n].last_id for n in (1, 3, 5))]
        assert_equal(await stored(stack, "target"), await stored(stack, "source"))

    await run(tmp_path, work)
    assert [step.seen for step in steps] == [5] * 8 + [0]


async def test_no_more_than_four_lists_of_ids_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies that were begun and left hold memory for four sources at most, a finished one none."""
    # A list that another test left is collected at any time, so it must not be counted.
    monkeypatch.setattr(copy_steps, "_lists", WeakKeyDictionary())

    async def work(stack: Stack) -> None:
        await filled(stack)
        for n in range(6):
            here = "source" if n == 0 else f"copy {n - 1}"
            await copy_vector_db(stack, here, f"copy {n}", provider_id="memory")
            assert not copy_steps._lists
        for n in range(6):
            await copy_batch(stack, f"copy {n}", "source", limit=5)
        assert len(copy_steps._lists) == 4
        assert set(copy_steps._lists) == {await stack.index(f"copy {n}") for n in range(2, 6)}

    await run(tmp_path, work)


async def test_a_copy_that_broke_is_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was copied stays; started again, in a new process too, only the rest is written."""

    async def breaks(stack: Stack) -> None:
        await filled(stack)
        await copy_batch(stack, "source", "target", provider_id="chroma", limit=10)
        target = await stack.index("target")
        write, writes = target._add, 0

        async def fail(*arguments: Any) -> None:
            nonlocal writes
            writes += 1
            if writes == 2:
                raise Unavailable("the backend is away")
            await write(*arguments)

        monkeypatch.setattr(target, "_add", fail)
        with pytest.raises(Unavailable):
            await copy_vector_db(stack, "source", "target", batch=10)

    await run(tmp_path, breaks)

    async def again(stack: Stack) -> None:
        assert await (await stack.index("target")).count() == 20
        report: CopyReport = await copy_vector_db(stack, "source", "target", batch=15)
        assert (report.seen, report.copied) == (40, 20)
        assert_equal(await stored(stack, "target"), await stored(stack, "source"))
        report = await copy_vector_db(stack, "source", "target")
        assert (report.seen, report.copied) == (40, 0)

    await run(tmp_path, again)


async def test_a_copy_can_begin_after_an_id(tmp_path: Path) -> None:
    """With the last id of a step the next one begins, and nothing before it is looked at."""

    async def work(stack: Stack) -> None:
        await filled(stack)
        first = await copy_batch(stack, "source", "target", provider_id="memory", limit=25)
        report = await copy_vector_db(stack, "source", "target", after=first.last_id)
        assert (first.copied, report.seen, report.copied) == (25, 15, 15)

    await run(tmp_path, work)


async def test_a_target_that_was_deleted_is_not_made_again_in_between(tmp_path: Path) -> None:
    """Only the first step registers: the rest alone would be no copy."""

    async def work(stack: Stack) -> None:
        await filled(stack)
        first = await copy_batch(stack, "source", "target", provider_id="memory", limit=25)
        await stack.unregister("target")
        with pytest.raises(NotFound, match="target"):
            await copy_batch(stack, "source", "target", after=first.last_id)

    await run(tmp_path, work)


async def test_a_source_that_is_written_to_is_noticed_and_can_be_caught_up(tmp_path: Path) -> None:
    """Behind the copy, an added chunk is missing and a changed one old, until it is run again."""

    async def work(stack: Stack) -> None:
        await filled(stack)
        source = await stack.index("source")
        first = await copy_batch(stack, "source", "target", provider_id="memory", limit=25)
        row = [[1.0] * DIMENSION] * 2
        ahead, behind = Chunk(chunk_id="zz", content="new"), Chunk(chunk_id="B", content="new")
        await source.add_chunks([ahead, behind], row)
        with pytest.raises(Conflict, match=r"has 42 chunks.* 41\..*lacks 1 chunks.*'B'") as raised:
            await copy_vector_db(stack, "source", "target", after=first.last_id)
        assert "copy again" in raised.value.hint
        changed = Chunk(chunk_id="A", content="other words", metadata={"n": 2})
        await source.add_chunks([changed], row[:1])
        report = await copy_vector_db(stack, "source", "target")
        assert report.copied == 2
        assert_equal(await stored(stack, "target"), await stored(stack, "source"))

    await run(tmp_path, work)


async def test_an_exchange_ahead_is_noticed_and_can_be_caught_up(tmp_path: Path) -> None:
    """A chunk in the place of a deleted one does not change their number: the verification tells.

    What was deleted ahead of the copy is not copied, though its id was on the list.
    """

    async def work(stack: Stack) -> None:
        await filled(stack)
        source = await stack.index("source")
        first = await copy_batch(stack, "source", "target", provider_id="memory", limit=25)
        await source.delete_chunks(["c0039"])
        await source.add_chunks([Chunk(chunk_id="zz", content="new")], [[1.0] * DIMENSION])
        step = await copy_batch(stack, "source", "target", after=first.last_id, limit=25)
        assert step.done
        with pytest.raises(Conflict, match=r"The target lacks 1 chunks, the first 'zz'"):
            await verify_copy(stack, "source", "target")
        assert (await copy_vector_db(stack, "source", "target")).copied == 1
        assert_equal(await stored(stack, "target"), await stored(stack, "source"))

    await run(tmp_path, work)


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"document_id": "d1", "odd": 1.0}},
        {"metadata": {"document_id": "d1", "odd": True}},
        {"metadata": {}},
        {"content": "something else"},
        {"chunk_metadata": RECORD},
    ],
    ids=["float", "boolean", "no metadata", "text", "record"],
)
async def test_what_differs_is_written_again(tmp_path: Path, change: dict[str, Any]) -> None:
    """A chunk that is another in the target is put right, by its text as by its metadata's kinds.

    If this fails: 1, 1.0 and true are taken for equal.
    """

    async def work(stack: Stack) -> None:
        await filled(stack)
        await copy_vector_db(stack, "source", "target", provider_id="memory")
        target = await stack.index("target")
        [old] = await target.get_chunks(["c0009"], include_embeddings=True)
        await target.add_chunks([old.model_copy(update=change)])
        assert (await copy_vector_db(stack, "source", "target")).copied == 1
        assert_equal(await stored(stack, "target"), await stored(stack, "source"))

    await run(tmp_path, work)


# --- verification ---------------------------------------------------------------------------------


def spoil_rows(target: Any) -> None:
    """Exchange what the target searches: every answer by vector is that of another chunk."""
    rows = target._embeddings._store
    rows[:40] = rows[:40][::-1].copy()


def spoil_words(target: Any) -> None:
    """Make the target's keyword index forget the last twenty chunks."""
    for n in range(20, 40):
        target._words.remove(f"c{n:04}")


async def lose_one(target: Any) -> None:
    """Delete a chunk of the target."""
    await target.delete_chunks(["c0009"])


async def gain_one(target: Any) -> None:
    """Add a chunk to the target that the source has not."""
    await target.add_chunks([Chunk(chunk_id="c9", content="new")], [[1.0] * DIMENSION])


async def exchange_one(target: Any) -> None:
    """Leave the number of chunks as it is."""
    await lose_one(target)
    await gain_one(target)


async def change_texts(target: Any) -> None:
    """Change the text of every chunk but its last character."""
    held = await target.get_chunks(await target.chunk_ids(), include_embeddings=True)
    await target.add_chunks([c.model_copy(update={"content": f"x {c.content}"}) for c in held])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lose_one, r"has 40 chunks, the target 39\. The target lacks 1 chunks, .* 'c0009'"),
        (gain_one, r"has 40 chunks, the target 41\. It has 1 of its own, the first 'c9'"),
        (exchange_one, r"source': The target lacks 1 .*'c0009'\. It has 1 of its own.*'c9'"),
        (change_texts, r"The content of '.*' differs\."),
        (spoil_rows, r"The embedding of '.*' differs\. \d+ of 20 vector queries"),
        (spoil_words, r"source': \d+ of 20 keyword queries are answered differently"),
    ],
)
async def test_a_broken_target_is_told(
    tmp_path: Path, spoil: Callable[[Any], Any], said: str
) -> None:
    """Lost, added, exchanged or changed chunks, and searches that find others: each is named.

    If this fails: the verification has become too weak to see the defect.
    """

    async def work(stack: Stack) -> None:
        await filled(stack)
        await copy_vector_db(stack, "source", "target", provider_id="memory")
        result = spoil(await stack.index("target"))
        if result is not None:
            await result
        with pytest.raises(Conflict, match=said):
            await verify_copy(stack, "source", "target")

    await run(tmp_path, work)


# --- refusals -------------------------------------------------------------------------------------


async def test_a_target_that_is_registered_otherwise_is_refused(tmp_path: Path) -> None:
    """The message names the settings; nothing is copied into it."""

    async def work(stack: Stack) -> None:
        await filled(stack)
        asked = {"vector_db_id": "target", "embedding_model": "hashing", "provider_id": "memory"}
        other = {**asked, "language": "nb", "metric": "l2", "ranker": {"type": "weighted"}}
        await stack.register(VectorDBRegistration.model_validate(other))
        for refuses in (copy_batch, copy_vector_db, verify_copy):
            with pytest.raises(Conflict, match="another language, metric") as raised:
                await refuses(stack, "source", "target")
            assert raised.value.field == "target_id"
        assert await (await stack.index("target")).count() == 0

    await run(tmp_path, work)


async def test_a_target_elsewhere_is_refused(tmp_path: Path) -> None:
    """A target that exists on another provider than the one named is not quietly used."""

    async def work(stack: Stack) -> None:
        await filled(stack)
        await copy_vector_db(stack, "source", "target", provider_id="memory")
        with pytest.raises(Conflict, match="another provider_id"):
            await copy_vector_db(stack, "source", "target", provider_id="sqlite")

    await run(tmp_path, work)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "field"),
    [
        (("source", "source"), {}, InvalidRequest, "target_id"),
        (("nobody", "target"), {}, NotFound, "vector_db_id"),
        (("source", "target"), {"provider_id": "memroy"}, UnknownProvider, "provider_id"),
        (("source", "target"), {"limit": 0}, InvalidRequest, "limit"),
        (("source", "target"), {"limit": -5}, InvalidRequest, "limit"),
        (("source", "target"), {"limit": 10_001}, InvalidRequest, "limit"),
        (("source", "target"), {"after": "\ud800"}, NotFound, "vector_db_id"),
    ],
)
async def test_a_bad_request_is_refused(
    tmp_path: Path, arguments: Any, options: Any, error: type[Exception], field: str
) -> None:
    """The same id twice, unknown ids, a size out of range: and nothing is registered."""

    async def work(stack: Stack) -> None:
        await filled(stack)
        with pytest.raises(error) as raised:
            await copy_batch(stack, *arguments, **options)
        assert raised.value.field == field  # type: ignore[attr-defined]
        assert [one.identifier for one in await stack.vector_dbs()] == ["source"]

    await run(tmp_path, work)
