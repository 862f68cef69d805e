"""What a provider is: a spec found by entry point, a config, and a factory imported late.

A provider package registers a `ProviderSpec` under the entry-point group `corral.providers`; the
built-in ones come through the same door. Listing specs imports no engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from corral.api.embedder import Embedder, ModelInfo
from corral.api.embedding_index import EmbeddingIndex
from corral.api.filters import COMPARISONS, COMPOUNDS
from corral.api.rankers import MaxRanker, RRFRanker, WeightedRanker
from corral.api.reranker import Reranker
from corral.api.vector_dbs import VectorDB

ENTRY_POINT_GROUP = "corral.providers"


class Api(StrEnum):
    """The kinds of provider; also the sections of `run.yaml`."""

    VECTOR_IO = "vector_io"
    EMBEDDING = "embedding"
    RERANK = "rerank"
    INFERENCE = "inference"


Support = Literal["no", "emulated", "native"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a vector_io provider can do; every field defaults to "cannot".

    One value serves the gate that refuses a registration, the conformance suite, `/v1/providers`,
    `corral providers` and the README's table.

    Attributes:
        vector, keyword, hybrid: `native` in the engine, `emulated` by Corral beside it, or `no`.
        metrics: The metrics that it can search with `normalize: false`.
        filter_operators: The filter types that it applies before the top k.
        max_dimension: Largest embedding; 0 for none.
        exact: True if vector search always finds the true nearest chunks.
        persistent: True if chunks outlive the process.
        concurrent_processes: True if several processes may use one vector DB at once.
        transactional: True if a killed process leaves no half-written call.
        fuzzy: True if keyword search can also find words spelled nearly like the query's.
    """

    vector: Support = "no"
    keyword: Support = "no"
    hybrid: Support = "no"
    metrics: tuple[str, ...] = ()
    filter_operators: tuple[str, ...] = ()
    max_dimension: int = 0
    exact: bool = False
    persistent: bool = False
    concurrent_processes: bool = False
    transactional: bool = False
    fuzzy: bool = False

    @property
    def modes(self) -> tuple[str, ...]:
        """The search modes that are supported, native or emulated."""
        return tuple(m for m in ("vector", "keyword", "hybrid") if getattr(self, m) != "no")

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {**asdict(self), "modes": list(self.modes)}


ALL_FILTERS: tuple[str, ...] = (*COMPARISONS, *COMPOUNDS)
"""Every filter type, for providers that translate them all."""

ENGINE_DEFAULTS = Capabilities(
    vector="native",
    keyword="native",
    hybrid="emulated",
    metrics=("cosine", "l2", "dot"),
    filter_operators=ALL_FILTERS,
    max_dimension=16_000,
    persistent=True,
)
"""What most engines can do, so that `replace(ENGINE_DEFAULTS, exact=True)` says what differs."""


@dataclass(frozen=True, slots=True)
class ProviderSpec:
    """How a provider type is named, configured and built.

    Attributes:
        api: What it implements.
        provider_type: `inline::name` (in this process) or `remote::name` (a service).
        description: One line for people.
        config: `package.module:Class`, a pydantic model that forbids unknown keys.
        factory: `package.module:function`, called with (provider_id, config, home) and returning
            the provider. Imported when the provider is first used.
        requires: Distributions that it imports, each looked for before the factory is imported.
        extra: The extra of corral-rag that installs them; "" where the core has all.
        then_run: A command that installs what no extra can, such as a model's weights.
        capabilities: For vector_io.
        default_ranker: For vector_io: how hybrid results are fused where a registration names no
            ranker; None takes the contract's, z-scores.
    """

    api: Api
    provider_type: str
    description: str
    config: str
    factory: str
    requires: tuple[str, ...] = ()
    extra: str = ""
    then_run: str = ""
    capabilities: Capabilities = Capabilities()
    default_ranker: RRFRanker | WeightedRanker | MaxRanker | None = None

    @property
    def name(self) -> str:
        """The type without `inline::` or `remote::`; the default provider id."""
        return self.provider_type.split("::", 1)[-1]


class ProviderConfig(BaseModel):
    """Base of provider configs: unknown keys are refused, names hold units."""

    # No input in errors: it may be a secret.
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a provider; `message` says why not, or what lags, without secrets."""

    status: Literal["OK", "Error"]
    message: str = ""


class Provider(ABC):
    """A configured provider. One instance serves the whole process."""

    def __init__(self, provider_id: str) -> None:
        self.provider_id = provider_id

    @abstractmethod
    async def health(self) -> Health:
        """Return OK if the provider can serve now, else why not. Never raises."""

    async def close(self) -> None:  # noqa: B027 - optional: many providers hold nothing
        """Release what the provider holds."""


Registered: TypeAlias = Callable[[], Awaitable[Collection[VectorDB]]]
"""Returns the registered vector DBs, of every provider, and those that are being registered."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """Data in an engine that no registration holds.

    Attributes:
        name: Name of the file, folder, table or collection.
        drop: Deletes it with everything in it.
        vector_db_id: The id that it was made for, where the engine knows.
        installation: `VectorDB.installation` of what it was made for, as the engine records it;
            "" if unknown.
    """

    name: str
    drop: Callable[[], Awaitable[None]]
    vector_db_id: str | None = None
    installation: str = ""


class VectorIOProvider(Provider):
    """Opens the indexes of vector DBs in one engine."""

    @abstractmethod
    async def open_index(self, vector_db: VectorDB, *, create: bool = False) -> EmbeddingIndex:
        """Return the index of a vector DB.

        The caller opens a vector DB once and keeps the index. Tenant, identifier, built_at and
        installation together identify an index. A vector DB that is registered again under the
        same id, or by another installation, shares no data with the earlier one.

        Args:
            vector_db: Its registration; the whole settings are the index's to use.
            create: Whether it is being registered and must be made; idempotent, and nothing
                remains when it fails.

        Raises:
            InvalidRequest: The engine cannot hold such a vector DB (create only).
            NotFound: It was created once, but its data is gone from the engine (without `create`).
            Unavailable, ProviderTimeout: The engine cannot be reached.
        """

    async def orphans(self, registered: Registered) -> list[Orphan]:
        """Return the data of this provider's making that no registration holds, by name.

        A process that is killed between making an index and registering it leaves such data. What
        is not certainly Corral's is left out. Where several installations share an engine, the
        vector DBs of the others are in the list, each with its `installation`. None by default:
        nothing outlives the process.

        Args:
            registered: Called once, after the engine was read.

        Raises:
            Unavailable, ProviderTimeout: The engine cannot be reached.
        """
        return []

    def resources(self) -> Collection[str]:
        """Return what `provider_vector_db_id` may name: existing things that can be attached.

        None by default: the provider names its own storage.
        """
        return ()


class EmbeddingProvider(Provider):
    """Serves embedding models."""

    @abstractmethod
    def models(self) -> list[ModelInfo]:
        """Return the models that the operator configured. Loads none of them."""

    @abstractmethod
    async def embedder(self, model: str) -> Embedder:
        """Return the embedder of a model of `models()`, loading it at the first call.

        Raises:
            MissingDependency: The model's files or packages are not installed.
        """


class RerankProvider(Provider):
    """Serves models that read a question and a text together and say how well they fit."""

    @abstractmethod
    def models(self) -> list[str]:
        """Return the names of the models that the operator configured. Loads none of them."""

    @abstractmethod
    async def reranker(self, model: str) -> Reranker:
        """Return the re-ranker of a model of `models()`, loading it at the first call.

        Raises:
            NotFound: It is not configured.
            MissingDependency: The model's files or packages are not installed.
        """


class InferenceProvider(Provider):
    """Serves language models; they rewrite questions, where a query asks for it."""

    @abstractmethod
    def models(self) -> list[str]:
        """Return the names of the models that the operator configured. Loads none of them."""

    @abstractmethod
    async def chat(self, model: str, prompt: str) -> str:
        """Return what a model of `models()` answers to a prompt: text that nobody has checked.

        Args:
            model: Its name.
            prompt: One message of a user.

        Returns:
            The answer as it came, possibly empty; of a length that the operator has bounded.

        Raises:
            NotFound: The model is not configured.
            Unavailable, ProviderTimeout: It cannot be reached, or not in time.
            ProviderError: It refused, or answered with something else than a text.
        """
