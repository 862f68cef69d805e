"""The stack: configured providers, registered vector DBs, and their indexes by name.

The server, the command line and the benchmark all use one `Stack`, so they ingest and query through
the same code.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from corral.api.embedder import Embedder
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import Conflict, NotFound
from corral.api.principal import UNRESTRICTED, Principal
from corral.api.provider import Orphan
from corral.api.vector_dbs import VectorDB, VectorDBRegistration
from corral.providers.base.config import RunConfig
from corral.providers.conversations.table import Conversations, ConversationTable
from corral.providers.files.store import FileStore
from corral.providers.ingestion.cache import EmbeddingCache
from corral.providers.ingestion.contexts import ContextCache
from corral.providers.ingestion.ingest import Ingester
from corral.providers.ingestion.jobs.runner import Workers
from corral.providers.ingestion.service import Ingestion
from corral.providers.rag.frame import metadata_cost
from corral.providers.stack.configured import ConfiguredProviders
from corral.providers.stack.host import check_shared, host_id
from corral.providers.stack.judged_sets import JudgedSets
from corral.providers.stack.making import Making
from corral.providers.stack.open_indexes import OpenIndexes
from corral.providers.stack.rebuild import Rebuilding
from corral.providers.stack.rebuild_table import RebuildTable
from corral.providers.stack.rebuild_writes import WriteReplayer
from corral.providers.stack.registrations import (
    check_capabilities,
    check_fingerprint,
    check_rights,
    resolved,
    same_registration,
    with_search,
)
from corral.providers.stack.registry import is_inline
from corral.providers.stack.syncing import Syncs
from corral.providers.stack.tunings import Tunings
from corral.providers.stack.vector_db_table import Key, VectorDBTable
from corral.providers.stack.vector_store_table import SECONDS_A_DAY, VectorStoreTable
from corral.providers.state.claims import Claims
from corral.providers.state.state import State
from corral.providers.vector_io.kit.write_ahead import WriteLogs

Fill: TypeAlias = Callable[[EmbeddingIndex], Awaitable[None]]


class Stack(ConfiguredProviders):
    """All providers, vector DBs, files and jobs of one Corral process.

    Creating a stack opens no vector DB and imports no engine.

    Each tenant has its own ids: a stack serves the vector DBs of its principal's tenant; vector DBs
    of other tenants do not exist for it.

    Args:
        config: The configuration.
        home: The data folder; created if it does not exist.
        clock: Returns the time in Unix seconds, for expiry.
        view_of: The stack that this one is a view of, and the view's principal; None for a new
            stack, which serves the operator.

    Attributes:
        principal: The caller that it serves.
        host: Id of this machine; "" if no other machine shares the registrations.
        claims: The claims of this process on background work.
        judged: The judged questions of all vector DBs.
        tunings: The tunings of all vector DBs.

    Raises:
        UnknownProvider, ConfigError: The configuration is invalid.
    """

    def __init__(
        self,
        config: RunConfig,
        home: Path,
        *,
        clock: Callable[[], float] = time.time,
        view_of: tuple[Stack, Principal] | None = None,
    ) -> None:
        whole, self.principal = view_of or (None, UNRESTRICTED)
        if whole is None:
            self.state = State(home, config.state.get_secret_value())
            super().__init__(config, home, logs=_logs(self.state) if config.shares_state else None)
            check_shared(config)
            self.state.open()
            self._vector_dbs = VectorDBTable(self.state)
            self._making = Making(self.state, home / "making")
            here = self.host = host_id(home) if config.shares_state else ""
            self.claims = Claims(self.state, home)
            self.files = FileStore.open(home, self.state, config.files, clock=clock)
            self.stores = VectorStoreTable(self.state, clock)
            self.judged, self.tunings = JudgedSets(self.state), Tunings(self.state)
            self._conversations = ConversationTable(self.state, clock)
            self.embeddings = EmbeddingCache(home, config.ingestion.cache_mib)
            self._contexts = ContextCache(home)
            ingester = Ingester(
                config.rag,
                metadata_cost,
                config.server.limits,
                self.embeddings,
                readers=self.readers(),
                contexts=self._contexts,
            )
            self.ingestion = Ingestion(
                self, Workers(self, home, self.state, config.ingestion, ingester, here)
            )
            self.syncs = Syncs(config, home, self.for_principal)
            rebuilds = RebuildTable(self.state)
            replayer = WriteReplayer(self, rebuilds, self._successor, self.ingestion.follow)
            self._open = OpenIndexes(self._vector_dbs, self.spec, self.vector_io, replayer, here)
            self.rebuilds = Rebuilding(
                self, self._vector_dbs, rebuilds, self._open, self.vector_io, self.claims
            )
        else:
            super().__init__(config, home, view_of=whole)
            self.state, self.claims, self.host = whole.state, whole.claims, whole.host
            self._vector_dbs, self._making = whole._vector_dbs, whole._making
            self._open, self.rebuilds = whole._open, whole.rebuilds
            self.stores, self.embeddings = whole.stores, whole.embeddings
            self._contexts = whole._contexts
            self._conversations = whole._conversations
            self.judged, self.tunings = whole.judged, whole.tunings
            self.files = whole.files.of(self.principal)
            self.ingestion = whole.ingestion.on(self)
            self.syncs = whole.syncs

    def for_principal(self, principal: Principal) -> Stack:
        """Return a view of this stack for a principal, which shares all its state.

        Close the stack, never a view.
        """
        return Stack(self.config, self.home, view_of=(self, principal))

    # --- vector DBs --------------------------------------------------------------------------

    async def vector_dbs(self) -> list[VectorDB]:
        """Return the registered vector DBs, by identifier."""
        found = await self._vector_dbs.of(self.principal.tenant)
        await self._open.look()
        return found

    async def vector_dbs_of_all(self) -> list[VectorDB]:
        """Return the registered vector DBs of all tenants."""
        return await self._vector_dbs.all()

    async def vector_db(self, vector_db_id: str) -> VectorDB:
        """Return a registered vector DB.

        Raises:
            NotFound: No vector DB has this id.
        """
        found = await self._vector_dbs.get(*self._key(vector_db_id))
        self._open.notice_changes()
        return found

    async def registered(self, vector_db_ids: Iterable[str]) -> set[str]:
        """Return the registered ids among `vector_db_ids`."""
        return await self._vector_dbs.known(self.principal.tenant, vector_db_ids)

    async def register(
        self,
        registration: VectorDBRegistration,
        *,
        fingerprint: str | None = None,
        fill: Fill | None = None,
    ) -> VectorDB:
        """Register a vector DB, create its index, and return the stored registration.

        Registering the same settings again returns the stored vector DB; if the backend lost its
        data, the index is recreated empty. A rejected registration leaves nothing behind.

        Args:
            fingerprint: Fingerprint of the embedder that made the embeddings to store; None for the
                current embedder's.
            fill: Adds chunks to the new index before it is registered. If it fails, nothing is
                registered. Rejected for an existing id.

        Raises:
            UnknownProvider: No such provider; the message names the nearest.
            InvalidRequest: A model is unknown, its dimension differs, or the provider cannot hold
                such a vector DB.
            Forbidden: See `check_rights`.
            Elsewhere: The id is registered, and another machine has its data.
            Conflict: The id is registered with other settings; the message names the fields.
            MissingDependency: The model's packages or files are not installed.
            ProviderError: The backend failed, or another process has locked the registry.
        """
        vector_db = resolved(registration, self, self.principal)
        async with self._open.lock[vector_db.key]:
            stored = await self._vector_dbs.find(*vector_db.key)
            if stored is None:
                attached = self.vector_io(vector_db.provider_id).resources()
                check_rights(vector_db, self.principal, attached)
                embedder = await self.embedder(vector_db.embedding_model)  # Inserts need it.
                vector_db.fingerprint = fingerprint or embedder.fingerprint
                vector_db.installation = await self.installation()
                if is_inline(self.spec(vector_db.provider_id).provider_type):
                    vector_db.host = self._open.here
                async with self._making.of(vector_db):
                    stored = await self._make(vector_db, fill)
            elif fill is not None:
                raise Conflict(
                    f"Vector DB {vector_db.identifier!r} exists.",
                    hint="Choose another id, or delete that vector DB first.",
                    field="vector_db_id",
                )
            if stored is not vector_db:
                same_registration(stored, vector_db)
                await self._open.usable(stored)
        return stored

    async def change_search(self, vector_db_id: str, settings: Mapping[str, Any]) -> VectorDB:
        """Change the query settings of a vector DB; its stored data does not change.

        Args:
            settings: Some of `QUERY_SETTINGS`, in the format of a registration.

        Raises:
            NotFound: No vector DB has this id.
            InvalidRequest: A setting is not in `QUERY_SETTINGS`, malformed, or not supported by
                the provider; nothing is changed.
            Conflict: Another process changed it at the same time.
        """
        async with self._open.lock[self._key(vector_db_id)]:
            stored = await self.vector_db(vector_db_id)
            changed = with_search(stored, settings)
            check_capabilities(changed, self.spec(changed.provider_id).capabilities)
            self.check_models(changed)
            await self._vector_dbs.replace(stored, changed)
        return changed

    async def rename(self, vector_db_id: str, name: str | None) -> VectorDB:
        """Change the `vector_db_name` of a vector DB, and return the vector DB.

        Raises:
            NotFound: No vector DB has this id.
            Conflict: Another process changed it at the same time.
        """
        async with self._open.lock[self._key(vector_db_id)]:
            stored = await self.vector_db(vector_db_id)
            renamed = stored.model_copy(update={"vector_db_name": name})
            await self._vector_dbs.replace(stored, renamed)
        return renamed

    async def unregister(self, vector_db_id: str) -> str:
        """Delete a vector DB with all its chunks, after the requests that use it have ended.

        It deletes only the registration that exists at the call, never a later one of the same id.

        Returns:
            A sentence about data that remains; "" if none does.

        Raises:
            NotFound: No vector DB has this id.
            Elsewhere: Another machine has its data.
            ProviderError: The backend failed; the vector DB is still registered.
        """
        asked = await self.vector_db(vector_db_id)
        if not self.has_vector_io(asked.provider_id):
            await self._vector_dbs.remove(asked)
            return (
                f"Its provider {asked.provider_id!r} is no longer in run.yaml: the registration "
                f"is deleted, and the chunks stay in that provider's storage."
            )
        async with self._open.lock[asked.key]:
            stored = await self._vector_dbs.find(*asked.key)
            if stored is not None and stored.created_at == asked.created_at:
                await self.rebuilds.forget(stored)
                with suppress(NotFound):  # An earlier deletion ended half-way.
                    await (await self._open.index(stored)).delete()
                self._open.forget(asked.key)
                await self._vector_dbs.remove(stored)
        return ""

    @property
    def conversations(self) -> Conversations:
        """The responses and conversations of the principal."""
        return self._conversations.of(self.principal)

    async def expire_conversations(self) -> None:
        """Delete the responses and conversations of all principals that are past retention."""
        await self._conversations.expire(self.config.answers.retention_days * SECONDS_A_DAY)

    async def installation(self) -> str:
        """Return the id of this installation: 32 hex digits, created once with its state.

        All data that the installation creates in engines carries this id.
        """
        return await self.state.installation()

    async def orphans(self, provider_id: str) -> list[Orphan]:
        """Return the data of a vector_io provider without a registration in this installation.

        Another `installation` may use its own data.

        Raises:
            UnknownProvider: No such provider is configured.
            ProviderError: The provider cannot list its data.
        """

        async def registered() -> list[VectorDB]:
            # Read these first: a vector DB that is finished in between is registered by then.
            made = [*await self._making.all(), *await self.rebuilds.targets()]
            return [*made, *await self._vector_dbs.all()]

        return await self.vector_io(provider_id).orphans(registered)

    async def index(self, vector_db_id: str, *, active: bool = True) -> EmbeddingIndex:
        """Return the principal's view of a vector DB's index, opening it at first use.

        Its calls raise NotFound once any process has deleted the vector DB.

        Args:
            active: True to count as activity, which postpones the expiry of a vector store.

        Raises:
            NotFound: No vector DB has this id, or the backend no longer has its data.
            Expired: `active` is True and the vector store has expired.
            Elsewhere: Another machine has its data.
            ProviderError: The backend cannot be reached.
        """
        vector_db = await self.vector_db(vector_db_id)
        if active:
            await self.stores.use(vector_db)
        return (await self._open.opened(vector_db)).scoped_to(self.principal)

    async def close(self) -> None:
        """Close every index and provider."""
        await self.tunings.close()
        await self.syncs.close()
        await self.ingestion.close()
        await self.rebuilds.close()
        await self._open.close()
        await super().close()
        await self.embeddings.close()
        await self._contexts.close()
        await self.stores.close()
        await self.state.close()

    async def embedder_of(self, vector_db: VectorDB) -> Embedder:
        """Return the embedder of a vector DB.

        Raises:
            NotFound: No configured provider serves the model.
            MissingDependency: Its packages or files are not installed.
            Conflict: It is not the embedder that made the embeddings; the message names the
                differences.
        """
        embedder = await self.embedder(vector_db.embedding_model)
        check_fingerprint(vector_db, embedder)
        return embedder

    # --- inside ------------------------------------------------------------------------------

    def _key(self, vector_db_id: str) -> Key:
        return self.principal.tenant, vector_db_id

    async def _successor(self, vector_db: VectorDB) -> EmbeddingIndex:
        """Return the index of a rebuilt vector DB, on which late writes are repeated."""
        return await self._open.opened(vector_db)

    async def _make(self, vector_db: VectorDB, fill: Fill | None) -> VectorDB:
        """Make the index of a new vector DB, register it, and return the registration."""
        index = await self.vector_io(vector_db.provider_id).open_index(vector_db, create=True)
        try:
            if fill is not None:
                await fill(index)
            await self._vector_dbs.add(vector_db)
        except BaseException as error:
            await index.delete()  # It is not registered, so no other process uses it.
            if isinstance(error, Conflict) and fill is None:  # Another process was faster.
                return await self._vector_dbs.get(*vector_db.key)
            raise
        self._open.keep(index)
        return vector_db


def _logs(state: State) -> WriteLogs:
    """Return the write-ahead logs in a state that machines share."""
    from corral.providers.stack.write_logs import StateWriteLog  # noqa: PLC0415 - few need it

    return partial(StateWriteLog, state)
