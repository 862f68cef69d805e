"""Rebuilding: another model or language behind the same name, and nothing is lost on the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import Conflict, InvalidRequest, NotFound, Unavailable
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.config import RunConfig
from corral.providers.copying.steps import CopyStep
from corral.providers.documents import delete_document
from corral.providers.embedding.hashing.embedder import HashingEmbedder, embed_text
from corral.providers.ingestion.storing import store
from corral.providers.rag.retrieval import Retrieval
from corral.providers.rag.tool import RagTool
from corral.providers.stack import Stack

PROVIDERS = ("sqlite", "memory", "faiss", "chroma", "qdrant", "milvus")
OLD, NEW = 32, 48


def config(dimension: int, *, also_remote: bool = False) -> RunConfig:
    """Return a configuration whose model `hashing` has so many dimensions."""
    embedding: list[dict[str, Any]] = [
        {
            "provider_id": "hashing",
            "provider_type": "inline::hashing",
            "config": {"dimension": dimension},
        }
    ]
    if also_remote:
        settings = {
            "base_url": "http://127.0.0.1:9/v1",
            "models": [{"model": "away", "dimension": 3}],
            "max_retries": 0,
        }
        embedding.append(
            {"provider_id": "remote", "provider_type": "remote::openai", "config": settings}
        )
    vector_io = [{"provider_id": i, "provider_type": f"inline::{i}"} for i in PROVIDERS]
    return RunConfig.model_validate({"providers": {"vector_io": vector_io, "embedding": embedding}})


@asynccontextmanager
async def opened(home: Path, dimension: int = NEW, **options: Any) -> AsyncIterator[Stack]:
    """Open a stack."""
    stack = Stack(config(dimension, **options), home)
    try:
        yield stack
    finally:
        await stack.close()


def chunk(number: int, words: str = "", document: str | None = None) -> Chunk:
    """Return a chunk of a document of five."""
    document = document or f"d{number // 5}"
    return Chunk(
        chunk_id=f"{document}-c{number:04}",
        content=f"{words or 'hundene løper'} number{number}",
        metadata={"document_id": document, "title": f"title{number}"},
        chunk_metadata=ChunkMetadata(document_id=document, chunk_embedding_model="hashing"),
    )


async def filled(home: Path, number: int = 40, provider_id: str = "sqlite") -> None:
    """Fill the vector DB `db` with embeddings of the old model, and close the stack."""
    async with opened(home, OLD) as stack:
        await stack.register(
            VectorDBRegistration(
                vector_db_id="db", embedding_model="hashing", provider_id=provider_id
            )
        )
        await store(stack, "db", [chunk(n) for n in range(number)])


async def begin(stack: Stack, **settings: Any) -> None:
    """Begin a rebuild of `db`, by the model as it is now unless settings are given."""
    vector_db = await stack.vector_db("db")
    await stack.rebuilds.begin(vector_db, settings or {"embedding_model": "hashing"})


async def steps(stack: Stack, limit: int = 15) -> list[CopyStep]:
    """Take all steps of a rebuild."""
    taken, after = list[CopyStep](), ""
    while not taken or not taken[-1].done:
        step = await stack.rebuilds.step(await stack.vector_db("db"), after, limit)
        taken.append(step)
        after = step.last_id
    return taken


async def switch(stack: Stack) -> str:
    """Switch, and return what stays behind."""
    return (await stack.rebuilds.switch(await stack.vector_db("db"))).note


async def stored(stack: Stack) -> list[Chunk]:
    """Return all chunks with their embeddings, by id."""
    index = await stack.index("db")
    ids = await index.chunk_ids("", 100_000)
    return await index.get_chunks(ids, include_embeddings=True)


def assert_embedded(chunks: Sequence[Chunk], dimension: int) -> None:
    """See that every embedding is the model's of that dimension, of the chunk's own text."""
    made = [embed_text(one.content, dimension) for one in chunks]
    here = np.array([one.embedding for one in chunks])
    np.testing.assert_allclose(here, np.array(made), atol=1e-5)


# --- what a rebuild is ----------------------------------------------------------------------------


@pytest.mark.parametrize("provider_id", [p for p in PROVIDERS if p != "memory"])
async def test_a_rebuilt_vector_db_has_the_new_models_embeddings(
    tmp_path: Path, provider_id: str
) -> None:
    """Chunks, records and ids stay; every embedding is new; the old index leaves nothing behind.

    If this fails: the engine keys its storage by something else than `built_at`, or the switch
    registers the wrong index.
    """
    await filled(tmp_path, provider_id=provider_id)
    async with opened(tmp_path) as stack:
        before = await stack.vector_db("db")
        with pytest.raises(Conflict, match="dimension was 32, is 48"):
            await Retrieval(stack).search("db", "hundene", mode="vector")
        await begin(stack)
        assert [step.copied for step in await steps(stack)] == [15, 15, 10]
        assert await switch(stack) == ""
        after = await stack.vector_db("db")
        assert (after.embedding_dimension, after.created_at) == (NEW, before.created_at)
        chunks = await stored(stack)
        assert [one.content for one in chunks] == [chunk(n).content for n in range(40)]
        assert_embedded(chunks, NEW)
        assert all(one.chunk_metadata for one in chunks)
        found = await Retrieval(stack).search("db", chunk(7).content, mode="vector", k=1)
        assert found.hits[0].chunk.chunk_id == chunk(7).chunk_id
        assert await stack.orphans(provider_id) == []
    async with opened(tmp_path) as stack:  # and after a restart
        assert_embedded(await stored(stack), NEW)


async def test_memory_is_rebuilt_within_one_process(tmp_path: Path) -> None:
    """A vector DB that no disk holds is rebuilt like any other."""
    async with opened(tmp_path) as stack:
        await stack.register(
            VectorDBRegistration(vector_db_id="db", embedding_model="hashing", provider_id="memory")
        )
        await store(stack, "db", [chunk(n) for n in range(10)])
        await begin(stack, language="norwegian")
        await steps(stack)
        await switch(stack)
        assert len(await stored(stack)) == 10
        assert (await stack.vector_db("db")).language == "norwegian"


async def test_language_and_field_weights_change_without_embedding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words are analyzed anew, embeddings are copied, and the embedder is never asked.

    If this fails: the words in the new index are those of the old analyzer, or the change costs
    what a change of the model costs.
    """
    await filled(tmp_path)
    async with opened(tmp_path, OLD) as stack:
        keyword = Retrieval(stack)
        assert not (await keyword.search("db", "hund", mode="keyword")).hits
        before = await stored(stack)

        async def fail(*_: Any) -> Any:
            raise AssertionError("embedded")

        monkeypatch.setattr(HashingEmbedder, "embed_documents", fail)
        await begin(stack, language="nb", field_weights={"content": 1.0, "title": 5.0})
        await steps(stack)
        await switch(stack)
        vector_db = await stack.vector_db("db")
        assert (vector_db.language, vector_db.field_weights["title"]) == ("norwegian", 5.0)
        assert len((await keyword.search("db", "hund", mode="keyword", k=40)).hits) == 40
        assert [c.embedding for c in await stored(stack)] == [c.embedding for c in before]


async def test_the_record_names_the_new_model(tmp_path: Path) -> None:
    """What a chunk's record says of the model that embedded it is true afterwards."""
    await filled(tmp_path, 5)
    async with opened(tmp_path) as stack:
        await begin(stack)
        await steps(stack)
        await switch(stack)
        for one in await stored(stack):
            assert one.chunk_metadata is not None
            assert one.chunk_metadata.chunk_embedding_dimension == NEW


async def test_search_settings_that_change_meanwhile_are_kept(tmp_path: Path) -> None:
    """A rebuild only changes what it was asked to change."""
    await filled(tmp_path, 5)
    async with opened(tmp_path) as stack:
        await begin(stack)
        await steps(stack)
        await stack.change_search("db", {"search_mode": "keyword"})
        await switch(stack)
        vector_db = await stack.vector_db("db")
        assert (vector_db.search_mode, vector_db.embedding_dimension) == ("keyword", NEW)


# --- interrupted ----------------------------------------------------------------------------------


async def test_a_rebuild_is_taken_up_where_it_ended(tmp_path: Path) -> None:
    """In another process, begun again with the same settings, it embeds only the rest.

    Until the switch the old index serves, and what is being built is no orphan.
    """
    await filled(tmp_path)
    async with opened(tmp_path) as stack:
        await begin(stack)
        await stack.rebuilds.step(await stack.vector_db("db"), "", 25)
        assert await stack.orphans("sqlite") == []
    async with opened(tmp_path) as stack:
        assert (await stack.vector_db("db")).embedding_dimension == OLD
        assert len(await stored(stack)) == 40
        await begin(stack)
        taken = await steps(stack, 25)
        assert [(step.seen, step.copied) for step in taken] == [(25, 0), (15, 15)]
        await switch(stack)
        assert_embedded(await stored(stack), NEW)


async def test_a_model_that_changed_once_more_is_not_mixed_in(tmp_path: Path) -> None:
    """What is being built is of one embedder: with another it is neither taken up nor continued."""
    await filled(tmp_path)
    async with opened(tmp_path) as stack:
        await begin(stack)
        await stack.rebuilds.step(await stack.vector_db("db"), "", 25)
    async with opened(tmp_path, 64) as stack:
        with pytest.raises(Conflict, match="rebuilt with another embedding_dimension, fingerprint"):
            await begin(stack)
        with pytest.raises(Conflict, match="dimension was 48, is 64"):
            await stack.rebuilds.step(await stack.vector_db("db"), "", 40)
        await stack.rebuilds.abandon(await stack.vector_db("db"))
        assert await stack.orphans("sqlite") == []
        await begin(stack)
        await steps(stack)
        await switch(stack)
        assert_embedded(await stored(stack), 64)


async def test_an_abandoned_rebuild_leaves_everything_as_it_was(tmp_path: Path) -> None:
    """The old index serves on, with its files alone."""
    await filled(tmp_path)
    async with opened(tmp_path, OLD) as stack:
        before = await stack.vector_db("db"), await stored(stack)
        await begin(stack, language="nb")
        await steps(stack)
        await stack.rebuilds.abandon(before[0])
        assert (await stack.vector_db("db"), await stored(stack)) == before
        assert len(list(tmp_path.rglob("sqlite/**/*.db"))) == 1
        with pytest.raises(Conflict, match="is not being rebuilt"):
            await stack.rebuilds.abandon(before[0])


async def test_a_vector_db_is_deleted_with_what_is_being_built(tmp_path: Path) -> None:
    """Neither index is left, and a successor of the same id inherits no rebuild."""
    await filled(tmp_path)
    async with opened(tmp_path) as stack:
        await begin(stack)
        await steps(stack)
        await stack.unregister("db")
        assert await stack.orphans("sqlite") == []
        assert list(tmp_path.rglob("sqlite/**/*.db")) == []
        await stack.register(VectorDBRegistration(vector_db_id="db", embedding_model="hashing"))
        assert await stack.rebuilds.find(await stack.vector_db("db")) is None


# --- in use ---------------------------------------------------------------------------------------


async def test_writes_during_a_rebuild_are_carried_over(tmp_path: Path) -> None:
    """Added, changed, replaced and deleted behind the steps: the new index has all of it.

    If this fails: a write is not noted, or a note is forgotten before it is carried over.
    """
    await filled(tmp_path)
    async with opened(tmp_path, OLD) as stack:
        await begin(stack, language="nb")
        await steps(stack)
        index = await stack.index("db")
        await store(stack, "db", [chunk(100, "katten", "a")])
        await store(stack, "db", [chunk(0, "katten")])
        await store(stack, "db", [chunk(200, "ny", "d3")], replace_documents=["d3"])
        await index.delete_chunks([chunk(39).chunk_id, chunk(1).chunk_id])
        await delete_document(index, "d4")
        expected = [c.model_dump() for c in await stored(stack)]
        await switch(stack)
        after = [c.model_dump() for c in await stored(stack)]
        assert [c["chunk_id"] for c in after] == [c["chunk_id"] for c in expected]
        assert [c["content"] for c in after] == [c["content"] for c in expected]
        assert_embedded(await stored(stack), OLD)


class Slow:
    """Holds up the embedder until it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, only: int) -> None:
        self.waiting, self.go = asyncio.Event(), asyncio.Event()
        embed = HashingEmbedder.embed_documents

        async def wait(embedder: HashingEmbedder, texts: Sequence[str]) -> NDArray[np.float32]:
            made = await embed(embedder, texts)
            if len(texts) == only and not self.go.is_set():
                self.waiting.set()
                await self.go.wait()
            return made

        monkeypatch.setattr(HashingEmbedder, "embed_documents", wait)


async def test_a_write_that_the_switch_overtakes_goes_into_the_new_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An insert that embeds while the switch happens is stored by the new model all the same.

    If this fails: a write is acknowledged and lost, or its embeddings are of the wrong model.
    """
    await filled(tmp_path, 5)
    monkeypatch.setattr(HashingEmbedder, "traits", {"version": "old"})
    async with opened(tmp_path, OLD) as stack:
        await begin(stack)
        await steps(stack)
        await switch(stack)
        slow = Slow(monkeypatch, only=3)
        write = asyncio.create_task(store(stack, "db", [chunk(n, "sent", "s") for n in range(3)]))
        await slow.waiting.wait()
        monkeypatch.setattr(HashingEmbedder, "traits", {"version": "new"})
        await begin(stack)
        await steps(stack)
        await switch(stack)
        slow.go.set()
        await write
        ids = [one.chunk_id for one in await stored(stack)]
        assert [i for i in ids if i.startswith("s-")] == [f"s-c{n:04}" for n in range(3)]
        assert (await stack.vector_db("db")).fingerprint == json.dumps(
            {"dimension": OLD, "model": "hashing", "version": "new"}
        )


async def searched(stack: Stack, question: str) -> str:
    """Return the id of the best chunk."""
    return (await Retrieval(stack).search("db", question, k=1)).hits[0].chunk.chunk_id


async def asked(stack: Stack, question: str) -> str:
    """Return the id of the first chunk in the context."""
    told = (await RagTool(stack).query(question, ["db"])).metadata
    return str(told["included_chunks"][0]["chunk_id"])


@pytest.mark.parametrize("ask", [searched, asked])
async def test_a_query_that_the_switch_overtakes_is_answered(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[[Stack, str], Coroutine[None, None, str]],
) -> None:
    """A question embedded for the old index is embedded again for the new one, and answered.

    If this fails: whoever asks while a rebuild ends is told that the vector DB was deleted.
    """
    await filled(tmp_path, 5)
    async with opened(tmp_path, OLD) as stack:
        embed, waiting, go = HashingEmbedder.embed_query, asyncio.Event(), asyncio.Event()

        async def wait(embedder: HashingEmbedder, text: str) -> NDArray[np.float32]:
            made = await embed(embedder, text)
            waiting.set()
            await go.wait()
            return made

        monkeypatch.setattr(HashingEmbedder, "embed_query", wait)
        query = asyncio.create_task(ask(stack, chunk(3).content))
        await waiting.wait()
        await begin(stack, language="nb")
        await steps(stack)
        await switch(stack)
        go.set()
        assert await query == chunk(3).chunk_id
        await stack.unregister("db")
        with pytest.raises(NotFound):
            await ask(stack, "anything")


async def test_writers_and_readers_never_notice_a_rebuild(tmp_path: Path) -> None:
    """Under writes and queries all the while, each acknowledged write is there after each of five
    switches, and no query fails or finds nothing.

    If this fails: there is a moment at which a write is in neither index, or a query in none.
    """
    await filled(tmp_path)
    rng = np.random.default_rng(12)
    expected = {chunk(n).chunk_id: chunk(n).content for n in range(40)}
    async with opened(tmp_path, OLD) as stack:
        done = asyncio.Event()

        async def write(writer: int) -> int:
            number = 0
            while not done.is_set():
                n = int(rng.integers(0, 40))
                if number % 7 == 3:
                    gone = chunk(n, document=f"w{writer}")
                    await (await stack.index("db")).delete_chunks([gone.chunk_id])
                    expected.pop(gone.chunk_id, None)
                else:
                    new = chunk(n, f"round{number}", f"w{writer}")
                    await store(stack, "db", [new])
                    expected[new.chunk_id] = new.content
                number += 1
            return number

        async def read() -> int:
            number = 0
            while not done.is_set():
                assert (await Retrieval(stack).search("db", "hundene number3")).hits
                number += 1
            return number

        tasks = [asyncio.create_task(work) for work in (write(0), write(1), read())]
        for language in ("nb", "en", "sv", "de", "fr"):
            await begin(stack, language=language)
            await steps(stack, 10)
            await switch(stack)
        done.set()
        assert min(await asyncio.gather(*tasks)) > 5
        assert {c.chunk_id: c.content for c in await stored(stack)} == expected
        assert_embedded(await stored(stack), OLD)
        assert await stack.orphans("sqlite") == []


async def test_another_process_follows(tmp_path: Path) -> None:
    """A second stack on the same folder notes its writes for a rebuild that it did not begin, and
    reads and writes the new index after a switch that it did not make."""
    await filled(tmp_path, 10)
    async with opened(tmp_path, OLD) as one, opened(tmp_path, OLD) as other:
        stale = await other.index("db")
        await begin(one, language="nb")
        await steps(one)
        await stale.add_chunks([chunk(50, document="x")], [embed_text("x", OLD)])
        await switch(one)
        await stale.add_chunks([chunk(51, document="x")], [embed_text("x", OLD)])
        await store(other, "db", [chunk(52, document="x")])
        for stack in (one, other):
            ids = [c.chunk_id for c in await stored(stack) if c.document_id == "x"]
            assert ids == ["x-c0050", "x-c0051", "x-c0052"]
        assert (await other.vector_db("db")).language == "norwegian"


async def test_a_switch_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that goes away while notes are carried over leaves the old index in service."""
    await filled(tmp_path, 10)
    async with opened(tmp_path, OLD) as stack:
        await begin(stack, language="nb")
        await steps(stack)
        await store(stack, "db", [chunk(60, document="x")])
        _, target = await stack.rebuilds._sides(
            await stack.rebuilds._rebuild(await stack.vector_db("db"))
        )
        add = EmbeddingIndex.add_chunks

        async def away(index: EmbeddingIndex, *arguments: Any, **options: Any) -> None:
            if index is target:
                raise Unavailable("the engine is away")
            await add(index, *arguments, **options)

        with monkeypatch.context() as patched:
            patched.setattr(EmbeddingIndex, "add_chunks", away)
            with pytest.raises(Unavailable):
                await switch(stack)
            assert (await stack.vector_db("db")).language == "english"
            await store(stack, "db", [chunk(61, document="x")])
        await switch(stack)
        assert len(await stored(stack)) == 12


# --- refusals -------------------------------------------------------------------------------------


async def test_nothing_to_change_is_said(tmp_path: Path) -> None:
    """What is registered already begins no rebuild, so a finished command can be repeated."""
    await filled(tmp_path, 5)
    async with opened(tmp_path, OLD) as stack:
        vector_db = await stack.vector_db("db")
        for settings in ({"embedding_model": "hashing"}, {"language": "en"}):
            assert await stack.rebuilds.begin(vector_db, settings) is None
        assert await stack.rebuilds.find(vector_db) is None


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"metric": "l2"}, InvalidRequest, "metric cannot be changed by a rebuild"),
        ({"language": "klingon"}, InvalidRequest, "language"),
        ({"field_weights": {"title": 1.0}}, InvalidRequest, "field_weights"),
        ({"embedding_model": "unknown"}, NotFound, "unknown"),
    ],
)
async def test_a_bad_change_is_refused(
    tmp_path: Path, settings: dict[str, Any], error: type[Exception], said: str
) -> None:
    """The message names the setting; nothing is begun."""
    await filled(tmp_path, 5)
    async with opened(tmp_path, OLD) as stack:
        with pytest.raises(error, match=said):
            await begin(stack, **settings)
        assert await stack.rebuilds.find(await stack.vector_db("db")) is None


async def test_steps_and_switches_are_of_a_rebuild(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a rebuild, with one of other settings, or with most chunks missing: a conflict."""
    await filled(tmp_path, 30)
    async with opened(tmp_path, OLD) as stack:
        vector_db = await stack.vector_db("db")
        with pytest.raises(Conflict, match="is not being rebuilt"):
            await stack.rebuilds.step(vector_db, "", 5)
        await begin(stack, language="nb")
        with pytest.raises(Conflict, match="rebuilt with another language"):
            await begin(stack, language="de")
        monkeypatch.setattr("corral.providers.copying.rebuild.MOST_LEFT", 20)
        with pytest.raises(Conflict, match="30 chunks are missing"):
            await switch(stack)
        assert (await stack.vector_db("db")).language == "english"


async def test_a_model_that_is_away_leaves_the_old_index(tmp_path: Path) -> None:
    """A step whose embedder cannot be reached fails, and can be taken again."""
    await filled(tmp_path, 5)
    async with opened(tmp_path, OLD, also_remote=True) as stack:
        await begin(stack, embedding_model="away")
        with pytest.raises(Unavailable):
            await steps(stack)
        assert (await stack.vector_db("db")).embedding_model == "hashing"
        assert (await Retrieval(stack).search("db", "hundene")).hits
