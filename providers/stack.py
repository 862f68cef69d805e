"""The stack: configured providers, registered vector DBs, and the way from a name to an index.

The server, the command line and the benchmark all stand on one `Stack`, so they ingest and query
through the same code.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from corral.api.embedder import Embedder, ModelInfo
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import (
    ConfigError,
    Conflict,
    ContractViolation,
    CorralError,
    InvalidRequest,
    NotFound,
    UnknownProvider,
)
from corral.api.provider import (
    Api,
    Capabilities,
    EmbeddingProvider,
    Health,
    InferenceProvider,
    Orphan,
    Provider,
    ProviderSpec,
    RerankProvider,
    VectorIOProvider,
)
from corral.api.reranker import ModelRerank, Rerank, Reranker
from corral.api.vector_dbs import VectorDB, VectorDBRegistration
from corral.providers.config import ProviderEntry, RunConfig
from corral.providers.open_indexes import OpenIndexes
from corral.providers.registrations import (
    check_capabilities,
    check_resource,
    same_registration,
    with_search,
)
from corral.providers.registry import build_provider, check_config, find_spec
from corral.providers.vector_dbs import VectorDBStore

HEALTH_TIMEOUT_SECONDS = 5.0

_P = TypeVar("_P", RerankProvider, InferenceProvider)


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """A configured provider as `/v1/providers` shows it; secrets in `config` are masked."""

    api: Api
    provider_id: str
    provider_type: str
    config: dict[str, Any]
    health: Health
    capabilities: Capabilities | None


class Stack:
    """Everything that one Corral process holds.

    Opening a stack checks the configuration of every provider but imports no engine and opens no
    vector DB, so one that is broken never keeps the server from starting.

    Args:
        config: Which providers run.
        home: The data folder; made where it is absent.

    Raises:
        UnknownProvider, ConfigError: The configuration cannot work.
    """

    def __init__(self, config: RunConfig, home: Path) -> None:
        self.config = config
        self.home = home
        self._entries = {
            (api, entry.provider_id): entry for api in Api for entry in config.providers.of(api)
        }
        for (api, _), entry in self._entries.items():
            check_config(api, entry)
        self._providers: dict[tuple[Api, str], Provider] = {}
        self._check_default_model()
        self._vector_dbs = VectorDBStore(home / "registry.db")
        self._made: dict[str, VectorDB] = {}
        self._open = OpenIndexes(self._vector_dbs, self._spec, self._vector_io)

    # --- vector DBs --------------------------------------------------------------------------

    async def vector_dbs(self) -> list[VectorDB]:
        """Return the registered vector DBs, by identifier."""
        return await self._open.registered()

    async def vector_db(self, vector_db_id: str) -> VectorDB:
        """Return a registered vector DB.

        Raises:
            NotFound: There is none of that id.
        """
        found = await self._vector_dbs.get(vector_db_id)
        self._open.notice_changes()
        return found

    async def registered(self, vector_db_ids: Iterable[str]) -> set[str]:
        """Return those of some ids under which a vector DB is registered."""
        return await self._vector_dbs.known(vector_db_ids)

    async def register(self, registration: VectorDBRegistration) -> VectorDB:
        """Register a vector DB, make its index, and return what was stored.

        Registering the same thing again returns the stored one, and makes it usable where its data
        is gone: it is empty then. A refused registration leaves nothing behind.

        Raises:
            UnknownProvider: No such provider; the message names the nearest.
            InvalidRequest: A model is unknown, its dimension differs, or the provider cannot hold
                such a vector DB.
            Conflict: The id is taken by a registration that differs; the message names where.
            MissingDependency: The model's packages or files are not installed.
            ProviderError: The backend failed, or another process has the registry locked.
        """
        vector_db = self._resolve(registration)
        async with self._open.lock[vector_db.identifier]:
            stored = await self._vector_dbs.find(vector_db.identifier)
            if stored is None:
                await self.embedder(vector_db.embedding_model)  # or the first insert would fail
                with self._making(vector_db):
                    stored = await self._make(vector_db)
            if stored is not vector_db:
                same_registration(stored, vector_db)
                await self._open.usable(stored)
        return stored

    async def change_search(self, vector_db_id: str, settings: Mapping[str, Any]) -> VectorDB:
        """Change how a vector DB is searched; what is stored in it stays as it is.

        Args:
            vector_db_id: Which one.
            settings: Some of `QUERY_SETTINGS`, as a registration takes them.

        Raises:
            NotFound: There is none of that id.
            InvalidRequest: A setting is none of `QUERY_SETTINGS`, malformed, or beyond the
                provider; nothing is changed.
            Conflict: Another process changed it at the same time.
        """
        async with self._open.lock[vector_db_id]:
            stored = await self.vector_db(vector_db_id)
            changed = with_search(stored, settings)
            check_capabilities(changed, self._spec(changed.provider_id).capabilities)
            self._check_reranker(changed.rerank)
            await self._vector_dbs.replace(stored, changed)
        return changed

    async def unregister(self, vector_db_id: str) -> str:
        """Delete a vector DB with all its chunks, once the requests that use it have ended.

        What is registered under the id when this is called is deleted, never a successor.

        Returns:
            What stays behind, in a sentence; "" where nothing does.

        Raises:
            NotFound: There is none of that id.
            ProviderError: The backend failed; the vector DB is still registered.
        """
        asked = await self.vector_db(vector_db_id)
        if (Api.VECTOR_IO, asked.provider_id) not in self._entries:
            await self._vector_dbs.remove(asked)
            return (
                f"Its provider {asked.provider_id!r} is not in run.yaml any more: the registration "
                f"is deleted, the chunks stay where that provider keeps them."
            )
        async with self._open.lock[vector_db_id]:
            stored = await self._vector_dbs.find(vector_db_id)
            if stored is not None and stored.created_at == asked.created_at:
                with suppress(NotFound):  # an earlier deletion ended half-way
                    await (await self._open.index(stored)).delete()
                self._open.forget(vector_db_id)
                await self._vector_dbs.remove(stored)
        return ""

    async def orphans(self, provider_id: str) -> list[Orphan]:
        """Return what a vector_io provider holds for no registration; see its contract.

        Raises:
            UnknownProvider: There is no such provider.
            ProviderError: It cannot be asked.
        """

        async def registered() -> list[VectorDB]:
            made = list(self._made.values())  # first: those that are done meanwhile are registered
            return [*made, *await self._vector_dbs.all()]

        return await self._vector_io(provider_id).orphans(registered)

    @contextmanager
    def _making(self, vector_db: VectorDB) -> Iterator[None]:
        """Let nobody take a vector DB that is being made for an orphan."""
        self._made[vector_db.identifier] = vector_db
        try:
            yield
        finally:
            del self._made[vector_db.identifier]

    async def index(self, vector_db_id: str) -> EmbeddingIndex:
        """Return the index of a registered vector DB, opening it at the first call.

        Its calls raise NotFound once the vector DB is deleted, by whomever.

        Raises:
            NotFound: There is none of that id, or its data is gone from the backend.
            ProviderError: The backend cannot be reached.
        """
        vector_db = await self.vector_db(vector_db_id)
        held = self._open.get(vector_db)
        if held is not None:
            return held
        async with self._open.lock[vector_db_id]:
            return await self._open.index(await self._vector_dbs.get(vector_db_id))

    # --- models and providers ----------------------------------------------------------------

    def models(self) -> list[tuple[str, ModelInfo]]:
        """Return (provider_id, model) for every embedding model that can be registered.

        A provider that cannot be built serves none; `providers` says why.
        """
        return self._models()[0]

    async def embedder(self, model: str) -> Embedder:
        """Return the embedder of a model.

        Raises:
            NotFound: No configured provider serves it.
            MissingDependency: Its packages or files are not installed.
        """
        return await self._embedding(self._model(model)[0]).embedder(model)

    def rerank_models(self) -> list[tuple[str, str]]:
        """Return (provider_id, model) for every re-ranking model that can be named.

        A provider that cannot be built serves none; `providers` says why.
        """
        return [(provider.provider_id, model) for provider, model in self._rerankers()[0]]

    async def reranker(self, model: str) -> Reranker:
        """Return the re-ranker of a model.

        Raises:
            InvalidRequest: No configured provider serves it; the message lists those there are.
            MissingDependency: Its packages or files are not installed.
        """
        provider = _serving(model, *self._rerankers(), Api.RERANK, "rerank.model")
        return await provider.reranker(model)

    def inference_models(self) -> list[tuple[str, str]]:
        """Return (provider_id, model) for every language model that can be named."""
        return [(provider.provider_id, model) for provider, model in self._chats()[0]]

    async def chat(self, model: str, prompt: str) -> str:
        """Return what a language model answers; see `InferenceProvider.chat`.

        Raises:
            InvalidRequest: No configured provider serves it; the message lists those there are.
            ProviderError: The service failed.
        """
        field = "query_config.query_generator_config.model"
        provider = _serving(model, *self._chats(), Api.INFERENCE, field)
        return await provider.chat(model, prompt)

    async def providers(self) -> list[ProviderStatus]:
        """Return every configured provider with its health, asked all at once."""
        return list(
            await asyncio.gather(*(self._status(api, e) for (api, _), e in self._entries.items()))
        )

    async def close(self) -> None:
        """Close every index and provider."""
        await self._open.close()
        for provider in self._providers.values():
            await provider.close()
        await self._vector_dbs.close()

    # --- inside ------------------------------------------------------------------------------

    async def _make(self, vector_db: VectorDB) -> VectorDB:
        """Make the index of a new vector DB, register it, and return what is registered now."""
        index = await self._vector_io(vector_db.provider_id).open_index(vector_db, create=True)
        try:
            await self._vector_dbs.add(vector_db)
        except BaseException as error:
            await index.delete()  # our own, which nobody has seen
            if isinstance(error, Conflict):  # another process was faster
                return await self._vector_dbs.get(vector_db.identifier)
            raise
        self._open.keep(index)
        return vector_db

    def _resolve(self, registration: VectorDBRegistration) -> VectorDB:
        provider_id = registration.provider_id or self.config.providers.vector_io[0].provider_id
        spec = self._spec(provider_id)
        _, info = self._model(registration.embedding_model)
        given = registration.embedding_dimension
        if given is not None and given != info.dimension:
            raise InvalidRequest(
                f"embedding_dimension is {given}, but {info.model} has {info.dimension}.",
                hint="Leave embedding_dimension out to take the model's.",
                field="embedding_dimension",
            )
        self._check_reranker(registration.rerank)
        resource_id = registration.provider_vector_db_id or registration.vector_db_id
        if resource_id != registration.vector_db_id:
            check_resource(resource_id, provider_id, self._vector_io(provider_id).resources())
        settings = registration.model_dump(
            exclude={"vector_db_id", "provider_id", "provider_vector_db_id", "embedding_dimension"}
        )
        if spec.default_ranker and "ranker" not in registration.model_fields_set:
            settings["ranker"] = spec.default_ranker
        vector_db = VectorDB(
            identifier=registration.vector_db_id,
            provider_id=provider_id,
            provider_resource_id=resource_id,
            embedding_dimension=info.dimension,
            created_at=time.time(),
            **settings,
        )
        check_capabilities(vector_db, spec.capabilities)
        return vector_db

    def _check_default_model(self) -> None:
        """Refuse a default model, where one is named, that no provider serves."""
        model = self.config.default_embedding_model
        if "default_embedding_model" not in self.config.model_fields_set:
            return
        known, failures = self._models()
        names = [info.model for _, info in known]
        if model not in names and not failures:  # a provider that is broken may serve it
            raise ConfigError(
                f"default_embedding_model is {model!r}, which no embedding provider serves.",
                hint=f"Known: {', '.join(names) or 'none'}.",
                field="default_embedding_model",
            )

    def _check_reranker(self, rerank: Rerank | None) -> None:
        if isinstance(rerank, ModelRerank):
            _serving(rerank.model, *self._rerankers(), Api.RERANK, "rerank.model")

    def _model(self, model: str) -> tuple[str, ModelInfo]:
        known, failures = self._models()
        for provider_id, info in known:
            if info.model == model:
                return provider_id, info
        if failures:  # it may be one of theirs, and their message says what to do
            raise failures[0]
        names = ", ".join(info.model for _, info in known)
        raise NotFound(
            f"No provider serves the embedding model {model!r}.",
            hint=f"Known: {names}. Models are configured in run.yaml.",
            field="embedding_model",
        )

    def _models(self) -> tuple[list[tuple[str, ModelInfo]], list[CorralError]]:
        found: list[tuple[str, ModelInfo]] = []
        failures: list[CorralError] = []
        for api, provider_id in self._entries:
            if api is Api.EMBEDDING:
                try:
                    models = self._embedding(provider_id).models()
                except CorralError as error:
                    failures.append(error)
                else:
                    found += [(provider_id, info) for info in models]
        return found, failures

    def _spec(self, provider_id: str) -> ProviderSpec:
        entry = self._entries.get((Api.VECTOR_IO, provider_id))
        if entry is None:
            known = [name for api, name in self._entries if api is Api.VECTOR_IO]
            raise UnknownProvider(provider_id, known, field="provider_id")
        return find_spec(Api.VECTOR_IO, entry.provider_type)

    def _vector_io(self, provider_id: str) -> VectorIOProvider:
        provider = self._provider(Api.VECTOR_IO, provider_id)
        if not isinstance(provider, VectorIOProvider):
            raise ContractViolation(f"{provider_id} is no VectorIOProvider.")
        return provider

    def _embedding(self, provider_id: str) -> EmbeddingProvider:
        provider = self._provider(Api.EMBEDDING, provider_id)
        if not isinstance(provider, EmbeddingProvider):
            raise ContractViolation(f"{provider_id} is no EmbeddingProvider.")
        return provider

    def _rerankers(self) -> tuple[list[tuple[RerankProvider, str]], list[CorralError]]:
        return self._served(Api.RERANK, RerankProvider)  # type: ignore[type-abstract]  # only looked for

    def _chats(self) -> tuple[list[tuple[InferenceProvider, str]], list[CorralError]]:
        return self._served(Api.INFERENCE, InferenceProvider)  # type: ignore[type-abstract]  # only looked for

    def _served(self, api: Api, kind: type[_P]) -> tuple[list[tuple[_P, str]], list[CorralError]]:
        """Return (provider, model) for each model of a kind, and why other providers have none."""
        found: list[tuple[_P, str]] = []
        failures: list[CorralError] = []
        for provider_id in [name for each, name in self._entries if each is api]:
            try:
                provider = self._provider(api, provider_id)
            except CorralError as error:
                failures.append(error)
                continue
            if not isinstance(provider, kind):
                raise ContractViolation(f"{provider_id} is no {kind.__name__}.")
            found += [(provider, model) for model in provider.models()]
        return found, failures

    def _provider(self, api: Api, provider_id: str) -> Provider:
        if (api, provider_id) not in self._entries:
            known = [name for kind, name in self._entries if kind is api]
            raise UnknownProvider(provider_id, known, field="provider_id")
        if (api, provider_id) not in self._providers:
            entry = self._entries[api, provider_id]
            self._providers[api, provider_id] = build_provider(api, entry, self.home)
        return self._providers[api, provider_id]

    async def _status(self, api: Api, entry: ProviderEntry) -> ProviderStatus:
        spec = find_spec(api, entry.provider_type)
        try:
            provider = self._provider(api, entry.provider_id)
            health = await asyncio.wait_for(provider.health(), HEALTH_TIMEOUT_SECONDS)
        except TimeoutError:
            health = Health("Error", f"no answer in {HEALTH_TIMEOUT_SECONDS:g} s")
        except CorralError as error:
            health = Health("Error", str(error))
        config = check_config(api, entry).model_dump(mode="json")
        capabilities = spec.capabilities if api is Api.VECTOR_IO else None
        return ProviderStatus(
            api, entry.provider_id, entry.provider_type, config, health, capabilities
        )


def _serving(
    model: str, known: list[tuple[_P, str]], failures: list[CorralError], api: Api, field: str
) -> _P:
    """Return the first provider that serves a model."""
    for provider, name in known:
        if name == model:
            return provider
    if failures:  # it may be one of theirs, and their message says what to do
        raise failures[0]
    names = ", ".join(dict.fromkeys(name for _, name in known))
    raise InvalidRequest(
        f"No {api} provider serves the model {model!r}.",
        hint=f"Known: {names}." if names else f"None is configured (providers.{api} in run.yaml).",
        field=field,
    )
