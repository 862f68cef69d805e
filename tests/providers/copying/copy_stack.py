"""A stack with every provider that needs no service, and odd chunks, for copies and snapshots."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.base.config import RunConfig
from corral.providers.stack.stack import Stack

DIMENSION = 64
PROVIDERS = {
    "sqlite": "inline::sqlite",
    "memory": "inline::memory",
    "faiss": "inline::faiss",
    "lancedb": "inline::lancedb",
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
