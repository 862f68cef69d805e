"""Fingerprints: embeddings of two models never meet, however alike their names are."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from corral.api.chunks import Chunk
from corral.api.errors import Conflict
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.base.config import RunConfig
from corral.providers.copying.copy import copy_vector_db
from corral.providers.embedding.minilm.model import Model
from corral.providers.embedding.minilm.weights import SHA256
from corral.providers.ingestion.storing import store
from corral.providers.rag.search import Retrieval
from corral.providers.stack.registrations import fingerprints_differ
from corral.providers.stack.stack import Stack

REGISTRATION = VectorDBRegistration(vector_db_id="db", embedding_model="e5")
CHUNK = Chunk(chunk_id="c", content="a fence keeps the sheep in")


@asynccontextmanager
async def opened(home: Path, query_prefix: str = "") -> AsyncIterator[Stack]:
    """Open a stack whose model `e5` puts something before questions; nothing listens there."""
    model = {"model": "e5", "dimension": 3, "query_prefix": query_prefix}
    config = {
        "providers": {
            "vector_io": [{"provider_id": "sqlite", "provider_type": "inline::sqlite"}],
            "embedding": [
                {
                    "provider_id": "remote",
                    "provider_type": "remote::openai",
                    "config": {"base_url": "http://127.0.0.1:9/v1", "models": [model]},
                },
                {"provider_id": "hashing", "provider_type": "inline::hashing"},
            ],
        }
    }
    stack = Stack(RunConfig.model_validate(config), home)
    try:
        yield stack
    finally:
        await stack.close()


async def filled(home: Path, query_prefix: str = "") -> None:
    """Register `db` and give it one chunk that brings its embedding."""
    async with opened(home, query_prefix) as stack:
        await stack.register(REGISTRATION)
        await (await stack.index("db")).add_chunks([CHUNK], [[1.0, 0.0, 0.0]])


async def test_a_registration_records_the_embedder(tmp_path: Path) -> None:
    """Model, dimension and what else decides on the embeddings is part of the registration.

    If this fails: a later change of the model cannot be noticed.
    """
    await filled(tmp_path, "query: ")
    async with opened(tmp_path) as stack:
        recorded = json.loads((await stack.vector_db("db")).fingerprint or "null")
    assert recorded == {"dimension": 3, "model": "e5", "query_prefix": "query: "}


async def test_another_embedder_is_refused(tmp_path: Path) -> None:
    """A query and an insert that embed are refused, and the error says what differs and what to do.

    What embeds nothing works: keyword search, and chunks that bring their embeddings.

    If this fails: answers come from embeddings that do not compare, and look like answers.
    """
    await filled(tmp_path)
    async with opened(tmp_path, "query: ") as stack:
        retrieval = Retrieval(stack)
        for mode in ("vector", "hybrid"):
            with pytest.raises(Conflict, match='query_prefix was not set, is "query: "') as raised:
                await retrieval.search("db", "fence", mode=mode)
            assert "corral reembed 'db'" in raised.value.hint
        with pytest.raises(Conflict, match="is not the one that made the embeddings"):
            await store(stack, "db", [Chunk(content="new")])
        assert (await retrieval.search("db", "fence", mode="keyword")).hits
        brought = Chunk(content="new", embedding=[0.0, 1.0, 0.0])
        await store(stack, "db", [brought])
        assert await (await stack.index("db")).count() == 2


def test_the_message_is_for_a_person() -> None:
    """What differs stands in words: what was not set, short values whole, digests as such."""
    stored = json.dumps({"weights": "a" * 64, "pooling": "mean"})
    now = json.dumps({"weights": "b" * 64, "pooling": "mean", "centered": "0.7 of 5c1f2a3b4d5e"})
    assert fingerprints_differ(stored, now) == (
        'centered was not set, is "0.7 of 5c1f2a3b4d5e"; weights was the file with sha256 '
        "aaaaaaaaaaaa..., is the file with sha256 bbbbbbbbbbbb..."
    )


async def test_registering_again_changes_no_fingerprint(tmp_path: Path) -> None:
    """The same registration sent again returns the stored one, although the model has changed."""
    await filled(tmp_path)
    async with opened(tmp_path, "query: ") as stack:
        before = await stack.vector_db("db")
        assert await stack.register(REGISTRATION) == before
        assert await stack.vector_db("db") == before


async def test_a_copy_keeps_the_fingerprint_of_its_source(tmp_path: Path) -> None:
    """Copied embeddings are the old model's, whatever the model is when they are copied.

    If this fails: copying makes embeddings of another model look like today's.
    """
    await filled(tmp_path)
    async with opened(tmp_path, "query: ") as stack:
        await copy_vector_db(stack, "db", "copy")
        source, copy = await stack.vector_db("db"), await stack.vector_db("copy")
        assert copy.fingerprint == source.fingerprint
        await stack.unregister("copy")
        await stack.register(REGISTRATION.model_copy(update={"vector_db_id": "copy"}))
        with pytest.raises(Conflict, match="another fingerprint"):
            await copy_vector_db(stack, "db", "copy")


def test_local_weights_are_part_of_the_fingerprint() -> None:
    """Another file of weights or words, under the same name, is another embedder."""
    assert set(SHA256.values()) <= set(Model.traits.values())
    assert Model.traits["pooling"] == "mean"
