"""A Llama Stack server, or any server with its `/v1/vector-io`, such as Corral.

    --peers llama-stack=http://127.0.0.1:8321#all-MiniLM-L6-v2

The server embeds the questions with the model after `#`, while chunks are stored with given
embeddings. So both must come from the same model: use --data and --embedder, not seeded data.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import httpx
import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.bench.system import BlockingSystem, Collection, Ranked, Search

MODEL = "all-MiniLM-L6-v2"
_TIMEOUT_SECONDS = 300.0


class LlamaStack(BlockingSystem):
    """A separate vector DB, unregistered at the end; one client per thread."""

    service = True

    async def prepare(self, collection: Collection) -> None:
        """Register a vector DB."""
        self._url, _, model = (self.address or "").partition("#")
        self._id = f"bench-{uuid4().hex[:12]}"
        self._mine = threading.local()
        self._open: list[httpx.Client] = []
        body = {
            "vector_db_id": self._id,
            "embedding_model": model or MODEL,
            "embedding_dimension": collection.dimension,
        }
        self._post("/v1/vector-dbs", body)

    async def add(self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> None:
        """Insert in one request; the chunk id is sent as the document's."""
        sent = [
            {
                "content": chunk.content,
                "metadata": {**chunk.metadata, "document_id": chunk.chunk_id},
                "embedding": row.tolist(),
            }
            for chunk, row in zip(chunks, embeddings, strict=True)
        ]
        self._post("/v1/vector-io/insert", {"vector_db_id": self._id, "chunks": sent})

    def find(self, asked: Search) -> Ranked:
        """Query by text; scores come from the server."""
        params = {"mode": asked.mode.value, "max_chunks": asked.k, "score_threshold": 0.0}
        body = {"vector_db_id": self._id, "query": asked.text, "params": params}
        answer = self._post("/v1/vector-io/query", body).json()
        found = zip(answer["chunks"], answer["scores"], strict=True)
        return [(chunk["metadata"]["document_id"], float(score)) for chunk, score in found]

    async def close(self) -> None:
        """Unregister the vector DB."""
        if hasattr(self, "_mine"):
            self._client().delete(f"/v1/vector-dbs/{self._id}")
            for client in self._open:
                client.close()

    def _post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        answer = self._client().post(path, json=body)
        if answer.status_code >= 400:
            raise RuntimeError(f"{path}: HTTP {answer.status_code}: {answer.text[:300]}")
        return answer

    def _client(self) -> httpx.Client:
        if not hasattr(self._mine, "client"):
            self._mine.client = httpx.Client(base_url=self._url, timeout=_TIMEOUT_SECONDS)
            self._open.append(self._mine.client)
        client: httpx.Client = self._mine.client
        return client


PEER = LlamaStack
