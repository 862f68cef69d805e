"""Copying between backends: nothing is lost, changed or embedded anew, and a bad copy is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.errors import Conflict, Forbidden, InvalidRequest, NotFound, UnknownProvider
from corral.api.hits import KeywordLeg, SearcherState, VectorLeg
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.copying import copy
from corral.providers.copying.copy import copy_batch, copy_vector_db, verify_copy
from corral.providers.embedding.hashing.embedder import HashingEmbedder
from corral.providers.stack.background import MAKING_SECONDS, MOST_SECONDS, Sweep
from corral.providers.stack.copy_steps import copy_step
from corral.providers.stack.stack import Stack

from ..vector_io.engines import engine_of
from .copy_stack import DIMENSION, assert_equal, embeddings, filled, opened, run, stored

# --- what a copy is -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "way", ["memory faiss", "lancedb sqlite", "chroma qdrant", "milvus sqlite"]
)
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


async def test_a_copied_chunk_expires_too(tmp_path: Path) -> None:
    """The sweep knows the time of a chunk in the copy as it does in the source.

    If this fails: a chunk that was to live for an hour is found in the copy for ever.
    """

    async def work(stack: Stack) -> None:
        await filled(stack)
        timed = ChunkMetadata(expires_at=4_000_000_000)
        chunk = Chunk(chunk_id="timed", content="x", chunk_metadata=timed)
        await (await stack.index("source")).add_chunks([chunk], embeddings(1))
        await copy_vector_db(stack, "source", "target", provider_id="memory")
        target = await stack.vector_db("target")
        due = await stack.stores.due_chunks(4_000_000_001)
        assert due == {(*target.key, target.created_at): ["timed"]}

    await run(tmp_path, work)


async def test_a_chunk_expires_whose_time_comes_while_it_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep meets the note of a chunk whose vector DB is registered once it is filled.

    If this fails: the note is forgotten, and the chunk is found in the copy for ever.
    """
    async with opened(tmp_path) as stack:
        await filled(stack)
        timed = ChunkMetadata(expires_at=1)
        chunk = Chunk(chunk_id="timed", content="x", chunk_metadata=timed)
        await (await stack.index("source")).add_chunks([chunk], embeddings(1))

        async def swept(*args: Any, **options: Any) -> Any:
            done = await copy_step(*args, **options)
            await Sweep(stack).once()
            return done

        monkeypatch.setattr(copy, "copy_step", swept)
        await copy_batch(stack, "source", "target", provider_id="memory")
        target = await stack.index("target")
        assert await target.get_chunks(["timed"])
        stack.stores.clock = lambda: time.time() + 2 * MOST_SECONDS
        await Sweep(stack).once()
        assert await target.get_chunks(["timed"]) == []
        stack.stores.clock = lambda: time.time() + 2 * MAKING_SECONDS
        await stack.stores.schedule(
            target.vector_db.model_copy(update={"identifier": "x"}), {"y": 1}
        )
        await Sweep(stack).once()
        assert await stack.stores.next_expiry() is None


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


# --- verification ---------------------------------------------------------------------------------


async def spoil_rows(target: Any) -> None:
    """Exchange the target's embeddings: every answer by vector is that of another chunk."""
    held = await target.get_chunks(await target.chunk_ids(), include_embeddings=True)
    await target.add_chunks(held, [chunk.embedding for chunk in reversed(held)])


def spoil_words(target: Any) -> None:
    """Make the target's keyword search forget the last twenty chunks."""
    engine = engine_of(target)
    search = engine.search_keyword

    async def forgetful(*arguments: Any) -> KeywordLeg:
        leg = await search(*arguments)
        return KeywordLeg([one for one in leg if one.chunk_id < "c0020"], leg.greatest)

    engine.search_keyword = forgetful


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


async def test_an_approximate_index_may_miss_neighbors(tmp_path: Path) -> None:
    """A target that reports an approximate index is a copy although it misses a neighbor.

    The same miss of a target that searches exactly is a difference. If this fails: no large vector
    DB with `index: auto` can be copied.
    """

    async def work(stack: Stack) -> None:
        await filled(stack)
        await copy_vector_db(stack, "source", "target", provider_id="memory")
        engine = engine_of(await stack.index("target"))
        search = engine.search_vector

        async def without_best(*arguments: Any) -> VectorLeg:
            return VectorLeg((await search(*arguments))[1:], SearcherState())

        async def approximate() -> SearcherState:
            return SearcherState("faiss", 40, 0.99)

        engine.search_vector = without_best
        with pytest.raises(Conflict, match="vector queries are answered differently"):
            await verify_copy(stack, "source", "target")
        engine.searcher_state = approximate
        checks = await verify_copy(stack, "source", "target")
        assert checks.vector_overlap is not None
        assert checks.vector_overlap < 1

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


async def test_a_refused_copy_deletes_nothing_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process registers the target meanwhile, and stores a chunk in it.

    If this fails: a copy that is refused takes away what was acknowledged to somebody else.
    """
    async with opened(tmp_path) as stack, opened(tmp_path) as other:
        await filled(stack)

        async def refused(*_: Any, **__: Any) -> None:
            monkeypatch.undo()
            assert await other.registered(["target"]) == set(), "seen before it is filled"
            await copy_vector_db(other, "source", "target")
            raise Forbidden("An acl is not yours.")

        monkeypatch.setattr(copy, "copy_step", refused)
        with pytest.raises(Forbidden):
            await copy_batch(stack, "source", "target")
        assert_equal(await stored(stack, "source"), await stored(other, "target"))


@pytest.mark.parametrize("as_copied", [True, False])
async def test_a_first_step_that_was_overtaken_begins_again(
    as_copied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process registers the target while the first step fills its own.

    If this fails: the step counts chunks as copied that went with the index which nobody has seen,
    or a conflict of the step itself is told as a target that is not there.
    """
    async with opened(tmp_path) as stack, opened(tmp_path) as other:
        await filled(stack)
        stepped = copy_step

        async def overtaken(*args: Any, **options: Any) -> Any:
            monkeypatch.undo()
            done = await stepped(*args, **options)
            if not as_copied:
                raise Conflict("The step's own.")
            registration = (await stack.vector_db("source")).model_dump(
                include={"embedding_model", "embedding_dimension", "language", "provider_id"}
            )
            await other.register(
                VectorDBRegistration.model_validate({**registration, "vector_db_id": "target"})
            )
            return done

        monkeypatch.setattr(copy, "copy_step", overtaken)
        if as_copied:
            await copy_vector_db(stack, "source", "target")
            assert_equal(await stored(stack, "source"), await stored(other, "target"))
        else:
            with pytest.raises(Conflict, match="own"):
                await copy_batch(stack, "source", "target")


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
