"""The road from one machine to a cluster: from SQLite to PostgreSQL, and back."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.base.config import RunConfig
from corral.providers.copying.copy import copy_batch, copy_vector_db
from corral.providers.copying.snapshots import export, restore
from corral.providers.stack.stack import Stack

COUNT, DIMENSION = 120, 32


def config() -> RunConfig:
    """Return a configuration with both providers."""
    pgvector = {
        "provider_id": "pgvector",
        "provider_type": "remote::pgvector",
        "config": {"dsn": os.environ["CORRAL_TEST_PGVECTOR_DSN"]},
    }
    hashing = {
        "provider_id": "hashing",
        "provider_type": "inline::hashing",
        "config": {"dimension": DIMENSION},
    }
    sqlite = {"provider_id": "sqlite", "provider_type": "inline::sqlite"}
    return RunConfig.model_validate(
        {"providers": {"vector_io": [sqlite, pgvector], "embedding": [hashing]}}
    )


async def journey(home: Path) -> None:
    """Fill SQLite, copy to PostgreSQL with an interruption, and back to SQLite."""
    stack = Stack(config(), home)
    asked = {"vector_db_id": "here", "embedding_model": "hashing", "language": "norwegian"}
    await stack.register(VectorDBRegistration.model_validate(asked))
    rng = np.random.default_rng(4)
    chunks = [
        Chunk(
            chunk_id=f"{'aB_-🙂å'[n % 6]}{n}",
            content=f"hundene {n} " + " ".join(f"ord{w}" for w in rng.integers(0, 40, 8)),
            metadata={"document_id": f"d{n // 9}", "tall": [1, 1.0, True, None], "æ": {"ø": n}},
            chunk_metadata=ChunkMetadata(source=f"kilde {n}") if n % 2 else None,
        )
        for n in range(COUNT)
    ]
    here = await stack.index("here")
    await here.add_chunks(chunks, rng.normal(size=(COUNT, DIMENSION)))
    try:
        await copy_batch(stack, "here", "there", provider_id="pgvector", limit=50)
        forth = await copy_vector_db(stack, "here", "there", batch=50)
        back = await copy_vector_db(stack, "there", "again", provider_id="sqlite")
        assert (forth.seen, forth.copied, back.copied) == (COUNT, COUNT - 50, COUNT)
        for report in (forth, back):
            assert report.checks.vector_overlap == report.checks.keyword_overlap == 1.0
        ids = await here.chunk_ids()
        there, again = await stack.index("there"), await stack.index("again")
        assert ids == await there.chunk_ids() == await again.chunk_ids()
        assert ids == sorted(chunk.chunk_id for chunk in chunks)
        assert list(map(repr, await here.get_chunks(ids))) == list(
            map(repr, await again.get_chunks(ids))
        )
        await stack.unregister("there")
    finally:
        await stack.close()


async def test_a_vector_db_goes_to_postgresql_and_back(tmp_path: Path) -> None:
    """Interrupted and taken up, all that is stored comes back exactly, in the same order of ids.

    If this fails for the order: PostgreSQL compares ids by the database's locale.
    """
    await journey(tmp_path)


async def test_a_vector_db_is_rebuilt_and_travels_as_a_file(tmp_path: Path) -> None:
    """Another language beside the old tables, which are dropped; then out by a snapshot and in.

    If this fails: the names of tables do not follow the index that serves.
    """
    stack = Stack(config(), tmp_path)
    try:
        asked = {"vector_db_id": "pg", "embedding_model": "hashing", "provider_id": "pgvector"}
        others = {orphan.name for orphan in await stack.orphans("pgvector")}  # of other tests
        vector_db = await stack.register(VectorDBRegistration.model_validate(asked))
        chunks = [Chunk(chunk_id=f"c{n}", content=f"hundene {n}", acl=["user:a"]) for n in range(9)]
        rows = np.random.default_rng(4).normal(size=(9, DIMENSION))
        await (await stack.index("pg")).add_chunks(chunks, rows)
        await stack.rebuilds.begin(vector_db, {"language": "nb"})
        assert (await stack.rebuilds.step(vector_db, "", 100)).copied == 9
        await (await stack.index("pg")).delete_chunks(["c3"])
        assert (await stack.rebuilds.switch(vector_db)).note == ""
        index = await stack.index("pg")
        assert len((await index.query(None, "hund", 20, mode="keyword")).hits) == 8
        assert {orphan.name for orphan in await stack.orphans("pgvector")} <= others
        file = io.BytesIO(b"".join([piece async for piece in export(stack, "pg")]))
        await restore(stack, file, vector_db_id="back", provider_id="pgvector")
        ids = await index.chunk_ids()
        back = await (await stack.index("back")).get_chunks(ids, include_embeddings=True)
        assert back == await index.get_chunks(ids, include_embeddings=True)
        for name in ("pg", "back"):
            await stack.unregister(name)
    finally:
        await stack.close()
