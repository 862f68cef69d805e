"""Chunks that are stored without the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from corral.api.chunks import Chunk
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.base.config import load_config
from corral.providers.stack.stack import Stack


def store(home: Path, chunks: Sequence[Chunk]) -> None:
    """Make the vector DB `farm` with these chunks and random embeddings."""

    async def work() -> None:
        stack = Stack(load_config(None, home), home)
        await stack.register(VectorDBRegistration(vector_db_id="farm", embedding_model="hashing"))
        rows = np.random.default_rng(1).normal(size=(len(chunks), 64))
        await (await stack.index("farm")).add_chunks(chunks, rows)
        await stack.close()

    asyncio.run(work())
