"""The suite on a configured provider, which may have vector DBs in use.

As a pytest plugin (`-p corral.api.testing.live`) it makes Ctrl-C wait for the end of the running
test. A cancelled coroutine may have a thread that continues to create data, which would remain.
"""

from __future__ import annotations

import secrets
import signal
from abc import abstractmethod
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import NotFound
from corral.api.provider import VectorIOProvider
from corral.api.testing import IndexConformance
from corral.api.vector_dbs import VectorDB
from corral.api.wire import MAX_ID_LENGTH


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let Ctrl-C stop the run between two tests."""

    def stop(*_: object) -> None:
        session.shouldstop = "interrupted"

    signal.signal(signal.SIGINT, stop)


class LiveConformance(IndexConformance):
    """Every standard test, in scratch vector DBs that each test deletes.

    A subclass sets `capabilities` and `provider`. Each test registers ids with a random prefix and
    a random time of registration, so that even a provider that confuses ids cannot reach other
    data. (Ids that are too long for the prefix stay unchanged.) They belong to a separate
    installation: `corral dbs prune --installation` removes the data of a killed run. A restart
    closes the provider and creates a second one.
    """

    _provider: VectorIOProvider | None = None

    @abstractmethod
    def provider(self) -> VectorIOProvider:
        """Return a new instance of the provider, closed by the suite."""

    @cached_property
    def _made(self) -> set[tuple[str, str]]:
        return set()

    @cached_property
    def _scratch(self) -> tuple[str, dict[str, Any]]:
        time = float(secrets.randbelow(2**40))
        prefix = f"conformance-{secrets.token_hex(8)}-"
        return prefix, {"created_at": time, "installation": secrets.token_hex(16)}

    def registration(self, vector_db: VectorDB) -> VectorDB:
        """Return the same registration under a unique name."""
        prefix, update = self._scratch
        if vector_db.installation:  # set by the test
            update = update | {"installation": vector_db.installation}
        name = f"{prefix}{vector_db.identifier}"
        if len(name) <= MAX_ID_LENGTH:
            update = update | {"identifier": name, "provider_resource_id": name}
        return vector_db.model_copy(update=update)

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        """Create the index, or open an existing index with a second provider.

        If the existing index was dropped, create it again as a registration does.
        """
        key = vector_db.identifier, vector_db.installation
        if key not in self._made:
            self._made.add(key)
            return await self._current().open_index(vector_db, create=True)
        await self.close()
        try:
            return await self._current().open_index(vector_db)
        except NotFound:
            return await self._current().open_index(vector_db, create=True)

    def _current(self) -> VectorIOProvider:
        if self._provider is None:
            self._provider = self.provider()
        return self._provider

    async def close(self) -> None:
        """Close the provider."""
        provider, self._provider = self._provider, None
        if provider is not None:
            await provider.close()
