"""A stack with a vector DB for the tests of jobs, and an embedder that can be slow or away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.errors import Unavailable
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.base.config import RunConfig
from corral.providers.embedding.hashing.embedder import HashingEmbedder
from corral.providers.ingestion.jobs.jobs import Job, JobRequest, JobStatus
from corral.providers.stack.stack import Stack

HASHING = {
    "provider_id": "hashing",
    "provider_type": "inline::hashing",
    "config": {"dimension": 16},
}


def run_config(**sections: Any) -> RunConfig:
    """Return a configuration with SQLite and the hashing embedder."""
    given = {"providers": {"embedding": [HASHING]}, "default_embedding_model": "hashing"}
    return RunConfig.model_validate({**given, **sections})


@asynccontextmanager
async def opened(home: Path, **sections: Any) -> AsyncIterator[Stack]:
    """Yield a stack with the vector DB `db`."""
    stack = Stack(run_config(**sections), home)
    try:
        registration = VectorDBRegistration(vector_db_id="db", embedding_model="hashing")
        await stack.register(registration)
        yield stack
    finally:
        await stack.close()


class Watched:
    """Counts the texts that the hashing embedder gets; can hold them up, or refuse them.

    `poison` is a word that it breaks on.

    Put in its place with `monkeypatch.setattr(HashingEmbedder, "embed_documents", ...)`.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = asyncio.Event()
        self.refusals = 0
        self.poison: str | None = None
        self._embed = HashingEmbedder.embed_documents

    async def pass_one(self) -> None:
        """Let the next call through, once it waits at the gate, and no other."""
        await self.waiting.wait()
        self.gate.set()
        self.gate.clear()

    async def __call__(
        self, embedder: HashingEmbedder, texts: Sequence[str]
    ) -> NDArray[np.float32]:
        """Embed texts."""
        self.waiting.set()
        await self.gate.wait()
        self.waiting.clear()
        if self.refusals:
            self.refusals -= 1
            raise Unavailable("The model is away.\0")
        if self.poison and any(self.poison in text for text in texts):
            raise ValueError(self.poison)
        self.texts += texts
        return await self._embed(embedder, texts)

    def method(self) -> Any:
        """Return it as a method."""

        async def embed_documents(
            embedder: HashingEmbedder, texts: Sequence[str]
        ) -> NDArray[np.float32]:
            return await self(embedder, texts)

        return embed_documents


def of_text(document_id: str, text: str, **more: Any) -> JobRequest:
    """Return a request with a document."""
    document = RAGDocument(document_id=document_id, content=text, **more)
    return JobRequest("db", document=document)


async def upload(stack: Stack, text: str, filename: str = "a.md") -> str:
    """Upload a file and return its id."""

    async def content() -> AsyncIterator[bytes]:
        yield text.encode()

    return (await stack.files.add(content(), filename=filename, purpose="assistants")).file_id


async def until_running(stack: Stack, job: Job) -> None:
    """Wait until a worker has a job."""
    while (await stack.ingestion.job(job.job_id)).status is JobStatus.QUEUED:  # noqa: ASYNC110 - in a table
        await asyncio.sleep(0.01)


async def finished(stack: Stack, jobs: Sequence[Job]) -> list[Job]:
    """Wait until jobs are final and return them."""
    for job in jobs:
        async for _ in stack.ingestion.changes(job_id=job.job_id):
            pass
    return [await stack.ingestion.job(job.job_id) for job in jobs]


async def stored(stack: Stack) -> dict[str, list[str]]:
    """Return the texts of all chunks by document, in their order."""
    index = await stack.index("db")
    found: dict[str, list[tuple[int, str]]] = {}
    for chunk in await index.get_chunks(await index.chunk_ids(limit=10_000)):
        place = (chunk.chunk_metadata and chunk.chunk_metadata.position) or 0
        found.setdefault(chunk.document_id or "", []).append((place, chunk.content))
    return {name: [text for _, text in sorted(texts)] for name, texts in found.items()}
