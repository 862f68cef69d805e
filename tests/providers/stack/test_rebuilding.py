"""Rebuilding: another model or language behind the same name, in one go or taken up again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corral.api.errors import Conflict, InvalidRequest, Unavailable
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.embedding.hashing.embedder import HashingEmbedder
from corral.providers.ingestion.storing import store
from corral.providers.rag.search import Retrieval
from corral.providers.stack.rebuild import MOST_LEFT

from .rebuild_stack import (
    NEW,
    OLD,
    PROVIDERS,
    assert_embedded,
    begin,
    chunk,
    filled,
    opened,
    steps,
    stored,
    switch,
)

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


# --- refusals -------------------------------------------------------------------------------------


async def test_a_setting_that_a_rebuild_cannot_change_is_refused(tmp_path: Path) -> None:
    """The message names it; nothing is begun. `server/test_rebuild.py` has other refusals."""
    await filled(tmp_path, 5)
    async with opened(tmp_path, OLD) as stack:
        with pytest.raises(InvalidRequest, match="metric cannot be changed by a rebuild"):
            await begin(stack, metric="l2")
        assert await stack.rebuilds.find(await stack.vector_db("db")) is None


async def test_steps_and_switches_are_of_a_rebuild(tmp_path: Path) -> None:
    """Without a rebuild, with one of other settings, or with most chunks missing: a conflict."""
    await filled(tmp_path, MOST_LEFT + 1)
    async with opened(tmp_path, OLD) as stack:
        vector_db = await stack.vector_db("db")
        with pytest.raises(Conflict, match="is not being rebuilt"):
            await stack.rebuilds.step(vector_db, "", 5)
        await begin(stack, language="nb")
        with pytest.raises(Conflict, match="rebuilt with another language"):
            await begin(stack, language="de")
        with pytest.raises(Conflict, match=f"{MOST_LEFT + 1} chunks differ"):
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
