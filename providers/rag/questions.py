"""The embeddings of the latest questions: one that is asked again, or in several modes beside each
other as the page does, is embedded once.

An embedding depends on the text and the model alone: it is nothing of any vector DB, and a hit says
nothing about what one holds. A tenant's questions are its own all the same, so that nobody can tell
by the time an answer takes what another tenant has asked. Texts are not kept, only their digests.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from hashlib import blake2b
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from corral.api.embedder import Embedder
from corral.api.spans import span

MOST = 1024
"""Questions that are remembered of a model; 1.5 MiB with 384 dimensions."""

LOOKED_UP = "question"
"""The span that says whether a question was known, or was being embedded already."""

Embedding = NDArray[np.float32]

Place: TypeAlias = tuple[asyncio.AbstractEventLoop, bytes]
"""Where a question is being embedded, and its digest."""


class _Known:
    """What one model was asked: embeddings, the latest last, and what is being embedded."""

    def __init__(self) -> None:
        self.embeddings: OrderedDict[bytes, Embedding] = OrderedDict()
        self.asked: dict[Place, asyncio.Task[Embedding]] = {}

    def done(self, place: Place, task: asyncio.Task[Embedding]) -> None:
        """Remember what a task has found."""
        del self.asked[place]
        if task.cancelled() or task.exception():
            return
        self.embeddings[place[1]] = task.result()
        if len(self.embeddings) > MOST:
            self.embeddings.popitem(last=False)


_known: WeakKeyDictionary[Embedder, _Known] = WeakKeyDictionary()


async def embedded(embedder: Embedder, tenant: str, text: str) -> Embedding:
    """Return the embedding of a question, shape (dimension,), read-only.

    Args:
        embedder: Which knows its model for as long as it lives.
        tenant: Whose question it is.
        text: The question.

    Raises:
        ProviderError: As `Embedder.embed_query` says; then nothing is remembered.
    """
    known = _known.get(embedder) or _known.setdefault(embedder, _Known())
    key = _digest(tenant, text)
    place = asyncio.get_running_loop(), key
    is_known = key in known.embeddings or place in known.asked
    with span(LOOKED_UP, result="hits" if is_known else "misses"):
        pass
    if key in known.embeddings:
        known.embeddings.move_to_end(key)
        return known.embeddings[key]
    # A task of its own: who asks first may leave, and others wait for the same.
    if not is_known:
        known.asked[place] = place[0].create_task(_embed(embedder, text))
        known.asked[place].add_done_callback(partial(known.done, place))
    return await asyncio.shield(known.asked[place])


async def _embed(embedder: Embedder, text: str) -> Embedding:
    with span("embed", provider=embedder.info.model, text=text):
        # A copy, since a row may hold its whole batch in memory; nobody may change it.
        found = np.array(await embedder.embed_query(text))
    found.flags.writeable = False
    return found


def _digest(tenant: str, text: str) -> bytes:
    said = f"{tenant}\0{text}".encode("utf-8", "surrogatepass")
    return blake2b(said, digest_size=16).digest()
