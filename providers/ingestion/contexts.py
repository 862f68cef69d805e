"""Sentences about chunks, written by a language model and cached: `contexts.db`.

A chunk from the middle of a document often does not say what it is about. The sentence is embedded
and indexed before the chunk's text, which stays as it is. A prompt has the beginning of the
document and the passage before the chunk; the cache's key is a hash of tenant, model and prompt, so
an interrupted or repeated ingest calls the model only for new passages. The cache can be deleted at
any time.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from corral.api.chunks import MAX_CONTEXT, Chunk, ChunkMetadata
from corral.providers.base.database import Database, Schema
from corral.providers.models.language import LanguageModels, first_line
from corral.providers.text.tokens import tokenizer

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS contexts"
    " (number INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB NOT NULL UNIQUE,"
    " context TEXT NOT NULL) STRICT",
)
TABLES = Schema(SCHEMA)
REMEDY = "Delete it; its sentences are written again where they are needed."

MAX_CACHED = 1_000_000
"""Sentences in the cache, about 300 MB; the oldest are deleted."""

MAX_BEGINNING = 1500
"""Characters of the beginning of a document in a prompt."""

MAX_BEFORE = 500
"""Characters of the passage before a chunk in a prompt."""

MAX_PASSAGE = 4000
"""Characters of a chunk in a prompt."""

_PROMPT = """\
A document begins:
<document>
{beginning}
</document>
A passage of it, after "{before}":
<passage>
{passage}
</passage>
Write one short sentence that says what this passage of the document is about, with the names that \
it leaves out, so that a search finds it. Answer with the sentence only.
"""


@dataclass(slots=True)
class ContextCost:
    """The cost of sentences that were not cached.

    Attributes:
        calls: Calls of the model.
        tokens: cl100k tokens of the prompts and answers.
        seconds: Time that the calls took.
    """

    calls: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def add(self, other: ContextCost) -> None:
        """Add the cost of other sentences."""
        self.calls += other.calls
        self.tokens += other.tokens
        self.seconds += other.seconds

    def described(self, model: str) -> str:
        """Return a message with the cost."""
        return (
            f"{model} wrote sentences about chunks: {self.calls} calls, {self.tokens} tokens, "
            f"{self.seconds:.1f} s."
        )


class ContextCache:
    """The cached sentences of a data folder. The first call creates the file."""

    def __init__(self, home: Path) -> None:
        self._file = Database(home / "contexts.db", TABLES, remedy=REMEDY)

    async def get(self, key: bytes) -> str | None:
        """Return a sentence; None if it is not cached.

        Raises:
            ProviderError: The file cannot be read.
        """
        rows = await self._file.read("SELECT context FROM contexts WHERE key = ?", key)
        return str(rows[0][0]) if rows else None

    async def put(self, key: bytes, context: str) -> None:
        """Store a sentence; "" if the model wrote none.

        Raises:
            ProviderError: The file cannot be written.
        """

        def insert(table: apsw.Connection) -> None:
            table.execute(
                "INSERT OR IGNORE INTO contexts(key, context) VALUES (?, ?)", (key, context)
            )
            oldest = "(SELECT max(number) FROM contexts) - ?"
            table.execute(f"DELETE FROM contexts WHERE number <= {oldest}", (MAX_CACHED,))  # noqa: S608 - constants only

        await self._file.write(insert)

    async def close(self) -> None:
        """Close the file after the running calls."""
        await self._file.close()


@dataclass(slots=True)
class ContextWriter:
    """Writes the sentences about the chunks of documents, which come in order.

    Attributes:
        models: Finds the model.
        model: Its name.
        tenant: The tenant of the vector DB; tenants share no cached sentence.
        cache: None to call the model for every chunk.
    """

    models: LanguageModels
    model: str
    tenant: str
    cache: ContextCache | None
    _document_id: str | None = field(default=None, init=False)
    _beginning: str = field(default="", init=False)
    _before: str = field(default="", init=False)

    async def write(self, chunks: Sequence[Chunk]) -> tuple[list[Chunk], Mapping[str, ContextCost]]:
        """Return the chunks with their sentences, and the cost by document id.

        Raises:
            ProviderError: The model or the cache failed; the sentences so far are cached.
        """
        written: list[Chunk] = []
        costs: dict[str, ContextCost] = {}
        for chunk in chunks:
            name = chunk.document_id or ""
            cost = costs.setdefault(name, ContextCost())
            written.append(_with_context(chunk, await self._context(name, chunk, cost)))
        return written, costs

    async def _context(self, name: str, chunk: Chunk, cost: ContextCost) -> str:
        if name != self._document_id:
            self._document_id, self._beginning, self._before = name, "", ""
        if len(self._beginning) < MAX_BEGINNING:
            self._beginning = f"{self._beginning}\n{chunk.content}".strip()[:MAX_BEGINNING]
        title = chunk.metadata.get("title")
        beginning = f"{title}\n{self._beginning}" if isinstance(title, str) else self._beginning
        prompt = _PROMPT.format(
            beginning=beginning[:MAX_BEGINNING],
            before=self._before,
            passage=chunk.content[:MAX_PASSAGE],
        )
        self._before = " ".join(chunk.content[-MAX_BEFORE:].split())
        key = _key(self.tenant, self.model, prompt)
        if self.cache and (cached := await self.cache.get(key)) is not None:
            return cached
        started = time.monotonic()
        answer = await self.models.complete(self.model, prompt)
        count = tokenizer().count
        spent = time.monotonic() - started
        cost.add(ContextCost(1, count(prompt) + count(answer), spent))
        context = first_line(answer, MAX_CONTEXT)
        if self.cache:
            await self.cache.put(key, context)
        return context


def _with_context(chunk: Chunk, context: str) -> Chunk:
    if not context:
        return chunk
    record = chunk.chunk_metadata or ChunkMetadata()
    changed = record.model_copy(update={"context": context})
    return chunk.model_copy(update={"chunk_metadata": changed})


def _key(tenant: str, model: str, prompt: str) -> bytes:
    key = f"{tenant}\0{model}\0{prompt}"
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()[:16]
