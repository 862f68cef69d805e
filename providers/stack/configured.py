"""The configured providers: built at first use, looked up by id or by model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from corral.api.embedder import Embedder, ModelInfo
from corral.api.errors import (
    ConfigError,
    ContractViolation,
    CorralError,
    InvalidRequest,
    NotFound,
    UnknownProvider,
)
from corral.api.filters import AutoFilters
from corral.api.provider import (
    Api,
    Capabilities,
    ChatChunk,
    ChatRequest,
    EmbeddingProvider,
    Health,
    InferenceProvider,
    Provider,
    ProviderSpec,
    QuotingProvider,
    ReaderConfig,
    ReaderProvider,
    RerankProvider,
    VectorIOProvider,
)
from corral.api.reranker import ModelRerank, Reranker
from corral.api.vector_dbs import SearchSettings
from corral.providers.base.config import ProviderEntry, RunConfig
from corral.providers.ingestion.read.external import ExternalReader
from corral.providers.stack.registry import build_provider, check_config, find_spec
from corral.providers.vector_io.kit.write_ahead import WriteLogs

HEALTH_TIMEOUT_SECONDS = 5.0

_CLASSES: dict[Api, type] = {
    Api.VECTOR_IO: VectorIOProvider,
    Api.EMBEDDING: EmbeddingProvider,
    Api.RERANK: RerankProvider,
    Api.INFERENCE: InferenceProvider,
    Api.READER: ReaderProvider,
}


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """A configured provider as `/v1/providers` shows it; secrets in `config` are masked."""

    api: Api
    provider_id: str
    provider_type: str
    config: dict[str, Any]
    health: Health
    capabilities: Capabilities | None


class ConfiguredProviders:
    """The providers of a configuration and the models they serve.

    It checks the settings of every provider but imports no engine, so that a broken engine never
    prevents the server from starting.

    Args:
        config: The configuration.
        home: The data folder.
        logs: The write-ahead logs of vector DBs; None for files in `home`.
        view_of: A stack with the same configuration, to share its providers; None for new
            providers.

    Raises:
        UnknownProvider, ConfigError: The configuration is invalid.
    """

    def __init__(
        self,
        config: RunConfig,
        home: Path,
        *,
        logs: WriteLogs | None = None,
        view_of: ConfiguredProviders | None = None,
    ) -> None:
        self.config = config
        self.home = home
        self._logs = logs
        if view_of is None:
            self._entries = {
                (api, entry.provider_id): entry for api in Api for entry in config.providers.of(api)
            }
            for (api, _), entry in self._entries.items():
                check_config(api, entry)
            self._built: dict[tuple[Api, str], Provider] = {}
            self._check_default_model()
        else:
            self._entries, self._built = view_of._entries, view_of._built
            self._logs = view_of._logs

    # --- models ------------------------------------------------------------------------------

    def models(self) -> list[tuple[str, ModelInfo]]:
        """Return (provider_id, model) for every embedding model that can be registered.

        A provider that cannot be built serves no model; `providers` returns the reason.
        """
        return [
            (provider.provider_id, info)
            for provider in self._buildable(Api.EMBEDDING)[0]
            for info in provider.models()
        ]

    def default_model(self) -> str:
        """Return the default embedding model of a registration.

        If the file names no default and no provider serves the built-in default, it is the first
        served model, unless a provider cannot be built, because that one may serve the default.
        """
        model = self.config.default_embedding_model
        if "default_embedding_model" in self.config.model_fields_set:
            return model
        served = [info.model for _, info in self.models()]
        if model in served or not served or self._buildable(Api.EMBEDDING)[1]:
            return model
        return served[0]

    def usable_default_model(self) -> str:
        """Return the default model if a provider serves it.

        Raises:
            InvalidRequest: No provider serves it; the message names the served models, if any.
            CorralError: The provider that may serve it cannot be built, and no model is served.
        """
        model, served = self.default_model(), [info.model for _, info in self.models()]
        if model in served:
            return model
        broken = self._buildable(Api.EMBEDDING)[1]
        if not broken:
            raise InvalidRequest(
                "embedding_model is missing, and no embedding model is configured.",
                hint="Configure one: providers.embedding in run.yaml.",
                field="embedding_model",
            )
        if not served:
            raise broken[0]
        raise InvalidRequest(
            f"embedding_model is missing, and the default, {model}, cannot be used: {broken[0]}",
            hint=f"Or send another embedding_model: {', '.join(served)}.",
            field="embedding_model",
        )

    async def embedder(self, model: str) -> Embedder:
        """Return the embedder of a model.

        Raises:
            NotFound: No configured provider serves it.
            MissingDependency: Its packages or files are not installed.
        """
        provider: EmbeddingProvider = self._provider(Api.EMBEDDING, self.model(model)[0])
        return await provider.embedder(model)

    def model(self, model: str) -> tuple[str, ModelInfo]:
        """Return the provider's id and the description of an embedding model.

        Raises:
            NotFound: No configured provider serves it.
            CorralError: A provider that may serve it cannot be built; the message has the reason.
        """
        known = self.models()
        found = next((each for each in known if each[1].model == model), None)
        if found is not None:
            return found
        self._raise_first_failure(Api.EMBEDDING)
        names = ", ".join(info.model for _, info in known)
        raise NotFound(
            f"No provider serves the embedding model {model!r}.",
            hint=f"Known: {names}. Models are configured in run.yaml.",
            field="embedding_model",
        )

    def rerank_models(self) -> list[tuple[str, str]]:
        """Return (provider_id, model) for every re-ranking model, as `models` does."""
        return self._model_names(Api.RERANK)

    async def reranker(self, model: str) -> Reranker:
        """Return the re-ranker of a model.

        Raises:
            InvalidRequest: No configured provider serves it; the message lists the known models.
            MissingDependency: Its packages or files are not installed.
        """
        provider: RerankProvider = self._serving(Api.RERANK, model, "rerank.model")
        return await provider.reranker(model)

    def check_models(self, settings: SearchSettings) -> None:
        """Raise InvalidRequest if a setting names a model that no configured provider serves."""
        if isinstance(settings.rerank, ModelRerank):
            self._serving(Api.RERANK, settings.rerank.model, "rerank.model")
        if isinstance(settings.auto_filters, AutoFilters):
            self._serving(Api.INFERENCE, settings.auto_filters.model, "auto_filters.model")
        if settings.chunking.context_model is not None:
            model = settings.chunking.context_model
            self._serving(Api.INFERENCE, model, "chunking.context_model")

    def inference_models(self, *, that_quote: bool = False) -> list[tuple[str, str]]:
        """Return (provider_id, model) for every language model, as `models` does.

        Args:
            that_quote: Include the models that only quote.
        """
        providers = self._buildable(Api.INFERENCE)[0]
        return [
            (one.provider_id, model)
            for one in providers
            if that_quote or not isinstance(one, QuotingProvider)
            for model in one.models()
        ]

    def inference(self, model: str) -> InferenceProvider:
        """Return the provider of a language model.

        Raises:
            InvalidRequest: No configured provider serves it; the message lists the known models.
        """
        provider: InferenceProvider = self._serving(Api.INFERENCE, model, "model")
        return provider

    def answering_model(self) -> str:
        """Return the language model that answers if a caller names none.

        Raises:
            InvalidRequest: No language model is configured.
        """
        models = [name for _, name in self.inference_models(that_quote=True)]
        chosen = self.config.answers.model or next(iter(models), None)
        if chosen is None:
            raise InvalidRequest(
                "No language model is configured.",
                hint="Add one under providers.inference in run.yaml, such as inline::extractive.",
                field="model",
            )
        return chosen

    def chat(self, request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        """Stream a language model's answer; see `InferenceProvider.chat`.

        Raises:
            InvalidRequest: No configured provider serves it; the message lists the known models.
        """
        return self.inference(request["model"]).chat(request)

    async def complete(self, model: str, prompt: str) -> str:
        """Return a language model's short answer; see `InferenceProvider.complete`.

        Raises:
            InvalidRequest: No configured provider serves it; the message lists the known models.
            ProviderError: The model failed.
        """
        field = "query_config.query_generator_config.model"
        provider: InferenceProvider = self._serving(Api.INFERENCE, model, field)
        return await provider.complete(model, prompt)

    def readers(self) -> list[ExternalReader]:
        """Return the configured readers in their order; none of them is built yet.

        Raises:
            ConfigError: A reader's config is not a `ReaderConfig`: its plugin is broken.
        """
        readers = []
        for (api, provider_id), entry in self._entries.items():
            if api is Api.READER:
                config = check_config(api, entry)
                if not isinstance(config, ReaderConfig):
                    raise ConfigError(
                        f"{entry.provider_type} is broken: its config is not a ReaderConfig.",
                        hint="Fix or uninstall its package.",
                        field="provider_type",
                    )
                build = partial(self._provider, Api.READER, provider_id)
                readers.append(ExternalReader(provider_id, config, build))
        return readers

    # --- providers ---------------------------------------------------------------------------

    async def providers(self, seconds: float | None = None) -> list[ProviderStatus]:
        """Return every configured provider with its health, checked concurrently.

        Args:
            seconds: Timeout of one health check (default 5); a slower provider counts as failed.
        """
        most = HEALTH_TIMEOUT_SECONDS if seconds is None else seconds
        asked = [self._status(api, entry, most) for (api, _), entry in self._entries.items()]
        return list(await asyncio.gather(*asked))

    def has_vector_io(self, provider_id: str) -> bool:
        """Return True if a vector_io provider of that id is configured."""
        return (Api.VECTOR_IO, provider_id) in self._entries

    def vector_io(self, provider_id: str) -> VectorIOProvider:
        """Return a vector_io provider, building it at first use.

        Raises:
            UnknownProvider: No provider with this id is configured.
            MissingDependency: Its packages are not installed.
        """
        provider: VectorIOProvider = self._provider(Api.VECTOR_IO, provider_id)
        return provider

    def spec(self, provider_id: str) -> ProviderSpec:
        """Return the spec of a vector_io provider; raise UnknownProvider for an unknown id."""
        return find_spec(Api.VECTOR_IO, self._entry(Api.VECTOR_IO, provider_id).provider_type)

    async def close(self) -> None:
        """Close every provider that was built."""
        for provider in self._built.values():
            await provider.close()

    # --- inside ------------------------------------------------------------------------------

    def _entry(self, api: Api, provider_id: str) -> ProviderEntry:
        if (api, provider_id) not in self._entries:
            known = [name for kind, name in self._entries if kind is api]
            raise UnknownProvider(provider_id, known, field="provider_id")
        return self._entries[api, provider_id]

    def _provider(self, api: Api, provider_id: str) -> Any:
        """Return a provider, checked to be of the class of its kind."""
        entry = self._entry(api, provider_id)
        if (api, provider_id) not in self._built:
            provider, wanted = build_provider(api, entry, self.home, self._logs), _CLASSES[api]
            if not isinstance(provider, wanted):
                raise ContractViolation(f"{provider_id} must be a {wanted.__name__}.")
            self._built[api, provider_id] = provider
        return self._built[api, provider_id]

    def _buildable(self, api: Api) -> tuple[list[Any], list[CorralError]]:
        """Return the providers of a kind that can be built, and the errors of the others."""
        found, failures = [], []
        for provider_id in [name for kind, name in self._entries if kind is api]:
            try:
                found.append(self._provider(api, provider_id))
            except ContractViolation:
                raise
            except CorralError as error:
                failures.append(error)
        return found, failures

    def _raise_first_failure(self, api: Api) -> None:
        """Raise the error of a provider that cannot be built, because it may serve the model."""
        for failure in self._buildable(api)[1]:
            raise failure

    def _model_names(self, api: Api) -> list[tuple[str, str]]:
        providers = self._buildable(api)[0]
        return [(one.provider_id, model) for one in providers for model in one.models()]

    def _serving(self, api: Api, model: str, field: str) -> Any:
        """Return the first provider that serves a model."""
        known = self._model_names(api)
        for provider_id, name in known:
            if name == model:
                return self._provider(api, provider_id)
        self._raise_first_failure(api)
        names = ", ".join(dict.fromkeys(name for _, name in known))
        none = f"None is configured (providers.{api} in run.yaml)."
        raise InvalidRequest(
            f"No {api} provider serves the model {model!r}.",
            hint=f"Known: {names}." if names else none,
            field=field,
        )

    def _check_default_model(self) -> None:
        """Raise ConfigError if the file names a default model that no provider serves."""
        model = self.config.default_embedding_model
        if "default_embedding_model" not in self.config.model_fields_set:
            return
        names = [info.model for _, info in self.models()]
        broken = self._buildable(Api.EMBEDDING)[1]  # One of them may serve it.
        if model not in names and not broken:
            raise ConfigError(
                f"default_embedding_model is {model!r}, which no embedding provider serves.",
                hint=f"Known: {', '.join(names) or 'none'}.",
                field="default_embedding_model",
            )

    async def _status(self, api: Api, entry: ProviderEntry, seconds: float) -> ProviderStatus:
        spec = find_spec(api, entry.provider_type)
        try:
            provider: Provider = self._provider(api, entry.provider_id)
            health = await asyncio.wait_for(provider.health(), seconds)
        except TimeoutError:
            health = Health("Error", f"no answer in {seconds:g} s")
        except CorralError as error:
            health = Health("Error", str(error))
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything; show the others
            health = Health("Error", f"health() raised {type(error).__name__}")
        return ProviderStatus(
            api,
            entry.provider_id,
            entry.provider_type,
            check_config(api, entry).model_dump(mode="json"),
            health,
            spec.capabilities if api is Api.VECTOR_IO else None,
        )
