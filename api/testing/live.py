"""The suite on a provider as it is configured, beside vector DBs that are in use.

As a pytest plugin (`-p corral.api.testing.live`) it makes Ctrl-C wait for the end of the test at
work. A coroutine that is cancelled may have a thread that goes on making what nobody then removes.
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
    """Every standard test, in scratch vector DBs that no test leaves behind.

    A subclass says which `capabilities` and which `provider`. Each test registers under ids with a
    random beginning and a random time of registration, so even a provider that confuses ids cannot
    reach what others have stored. (Ids too long for the beginning are left as the suite makes
    them.) They belong to an installation of their own: `corral dbs prune --installation` removes
    what a killed run leaves. A restart closes the provider and asks for a second one.
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
        """Return the same registration under a name that nobody else has."""
        prefix, update = self._scratch
        if vector_db.installation:  # the test's own
            update = update | {"installation": vector_db.installation}
        name = f"{prefix}{vector_db.identifier}"
        if len(name) <= MAX_ID_LENGTH:
            update = update | {"identifier": name, "provider_resource_id": name}
        return vector_db.model_copy(update=update)

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        """Make the index; one that was made before is opened by a second provider, if it is there.

        Where it is not, it was dropped, and is made anew as a registration does.
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
