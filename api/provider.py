"""Providers: a spec discovered by entry point, a config, and a lazily imported factory.

A provider package registers a `ProviderSpec` under the entry-point group `corral.providers`, as the
built-in providers do. Listing specs imports no engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

from corral.api.embedder import Embedder, ModelInfo
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import InvalidRequest
from corral.api.filters import COMPARISONS, COMPOUNDS
from corral.api.rankers import MaxRanker, RRFRanker, WeightedRanker
from corral.api.reader import Readable, takes
from corral.api.reranker import Reranker
from corral.api.vector_dbs import VectorDB

ENTRY_POINT_GROUP = "corral.providers"


ChatRequest: TypeAlias = Mapping[str, Any]
"""The body of OpenAI's `POST /v1/chat/completions`: `model`, `messages`, and optional fields."""

ChatChunk: TypeAlias = Mapping[str, Any]
"""OpenAI's object `chat.completion.chunk`: a piece of an answer."""


class Api(StrEnum):
    """The kinds of provider; also the sections of `run.yaml`."""

    VECTOR_IO = "vector_io"
    EMBEDDING = "embedding"
    RERANK = "rerank"
    INFERENCE = "inference"
    READER = "reader"


Support = Literal["no", "emulated", "native"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of a vector_io provider; every field defaults to "cannot".

    The check at registration, the conformance suite, `/v1/providers`, `corral providers` and the
    README's table all read this value.

    Attributes:
        vector, keyword, hybrid: `native` in the engine, `emulated` by Corral, or `no`.
        metrics: The metrics that it can search with `normalize: false`.
        filter_operators: The filter types that it applies before the top k.
        max_dimension: Largest embedding; 0 for none.
        exact: True if vector search always finds the true nearest chunks.
        persistent: True if chunks outlive the process.
        concurrent_processes: True if several processes may use one vector DB at once.
        transactional: True if a killed process leaves no half-written call.
        fuzzy: True if keyword search can also find words spelled similarly to the query's words.
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
"""The capabilities of most engines; use `replace(ENGINE_DEFAULTS, exact=True)` for differences."""


@dataclass(frozen=True, slots=True)
class ProviderSpec:
    """The name, configuration and factory of a provider type.

    Attributes:
        api: The kind of provider.
        provider_type: `inline::name` (in this process) or `remote::name` (a service).
        description: One line for users.
        config: `package.module:Class`, a pydantic model that forbids unknown keys.
        factory: `package.module:function`, called with (provider_id, config, home) and returning
            the provider. Imported when the provider is first used.
        write_log: True to call the factory with a fourth argument, `logs`: the write-ahead logs of
            vector DBs, for an engine without transactions over several requests
            (`corral.providers.vector_io.kit.write_ahead`). Machines that share a state share them.
        requires: Distributions that it imports; each is checked before the factory is imported.
        extra: The extra of corral-rag that installs them; "" if the core package suffices.
        then_run: A command that installs further requirements, such as a model's weights.
        capabilities: Capabilities of a vector_io provider.
        default_ranker: For vector_io: fuses hybrid results if a registration names no ranker; None
            takes the default ranker, z-scores.
    """

    api: Api
    provider_type: str
    description: str
    config: str
    factory: str
    requires: tuple[str, ...] = ()
    extra: str = ""
    then_run: str = ""
    write_log: bool = False
    capabilities: Capabilities = Capabilities()
    default_ranker: RRFRanker | WeightedRanker | MaxRanker | None = None

    @property
    def name(self) -> str:
        """The type without `inline::` or `remote::`; the default provider id."""
        return self.provider_type.split("::", 1)[-1]


class ProviderConfig(BaseModel):
    """Base of provider configs: unknown keys are rejected, field names include units."""

    # Errors leave out the input, which may be a secret.
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


_MIME_PATTERN = r"^[a-z0-9][a-z0-9!#$&^_.+-]*/(\*|[a-z0-9][a-z0-9!#$&^_.+-]*)$"

MimePattern: TypeAlias = Annotated[str, Field(pattern=_MIME_PATTERN, max_length=255)]
"""A MIME type in lower case, or all subtypes of one: `image/*`."""


class ReaderConfig(ProviderConfig):
    """Base of the configs of readers. Only files of the listed types are given to a reader.

    Attributes:
        supported: Types that the reader can take; a subclass narrows them.
        mime_types: Types to give it, such as `application/pdf` or `image/*`. Required: nothing is
            sent to a service that the operator did not choose for a type.
        max_mib: Largest file, default 64; a larger one is refused before it is sent.
    """

    supported: ClassVar[tuple[str, ...]] = ("*/*",)

    mime_types: list[MimePattern] = Field(min_length=1)
    max_mib: float = Field(default=64, gt=0)

    @model_validator(mode="after")
    def _is_supported(self) -> ReaderConfig:
        for each in self.mime_types:
            if not takes(self.supported, each):
                raise ValueError(f"mime_types must be among {', '.join(self.supported)}")
        return self


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a provider.

    Attributes:
        status: OK if the provider can serve.
        message: The reason for an error or a lag, without secrets.
        version: The version of the service that answered; "" if there is none, or it is unknown.
    """

    status: Literal["OK", "Error"]
    message: str = ""
    version: str = field(default="", compare=False)


class Provider(ABC):
    """A configured provider. One instance serves the whole process."""

    def __init__(self, provider_id: str) -> None:
        self.provider_id = provider_id

    @abstractmethod
    async def health(self) -> Health:
        """Return OK if the provider can serve now, else Error with the reason. Never raises."""

    async def close(self) -> None:
        """Release the provider's resources."""


Registered: TypeAlias = Callable[[], Awaitable[Collection[VectorDB]]]
"""Returns the vector DBs of every provider that are registered or being registered."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """Data in an engine that belongs to no registration.

    Attributes:
        name: Name of the file, folder, table or collection.
        drop: Deletes it with everything in it.
        vector_db_id: The id of its vector DB, if the engine records it.
        installation: `VectorDB.installation` of its vector DB, as the engine records it; "" if
            unknown.
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
            vector_db: The registration; the index may use all its settings.
            create: True if the vector DB is being registered: create the index. Idempotent; a
                failed call leaves nothing behind.

        Raises:
            InvalidRequest: The engine cannot hold such a vector DB (create only).
            NotFound: The engine no longer has the data of the index (without `create`).
            Unavailable, ProviderTimeout: The engine cannot be reached.
        """

    async def orphans(self, registered: Registered) -> list[Orphan]:
        """Return the data that this provider made and that no registration uses, ordered by name.

        A process that is killed between making an index and registering it leaves such data. Data
        that may not be Corral's is left out. If several installations share an engine, the list
        includes the vector DBs of the other installations, each with its `installation`. Empty by
        default, for engines without data that outlives the process.

        Args:
            registered: Called once, after the engine was read.

        Raises:
            Unavailable, ProviderTimeout: The engine cannot be reached.
        """
        return []

    async def disk_bytes(self, vector_db: VectorDB) -> int | None:
        """Return the size of a vector DB's files on this machine; None if it has none here."""
        return None

    def resources(self) -> Collection[str]:
        """Return the valid values of `provider_vector_db_id`: existing tables to attach.

        Empty by default: the provider names its own storage.
        """
        return ()


class EmbeddingProvider(Provider):
    """Serves embedding models."""

    @abstractmethod
    def models(self) -> list[ModelInfo]:
        """Return the models that the operator configured, without loading them."""

    @abstractmethod
    async def embedder(self, model: str) -> Embedder:
        """Return the embedder of a model of `models()`, loading it at the first call.

        Raises:
            MissingDependency: The model's files or packages are not installed.
        """


class RerankProvider(Provider):
    """Serves models that read a question and a text together and score the match."""

    @abstractmethod
    def models(self) -> list[str]:
        """Return the names of the models that the operator configured, without loading them."""

    @abstractmethod
    async def reranker(self, model: str) -> Reranker:
        """Return the re-ranker of a model of `models()`, loading it at the first call.

        Raises:
            NotFound: It is not configured.
            MissingDependency: The model's files or packages are not installed.
        """


class ReaderProvider(Provider):
    """Turns files into text. Its config is a `ReaderConfig`, which names the files' types.

    Corral bounds the size of a file before the call, and the characters and pages of the answer
    after it. During the call, the reader limits its own time and memory.
    """

    @abstractmethod
    async def read(self, data: bytes, mime_type: str) -> Readable:
        """Return the text of a file.

        Args:
            data: The file, not empty.
            mime_type: Its type in lower case, without parameters, detected from the content if
                possible.

        Raises:
            InvalidRequest: The file is damaged, locked or of another type: a retry cannot help.
            Refused: A service refuses the file; reported as an invalid file.
            Unavailable, ProviderTimeout: The service cannot be reached, or is too slow.
            ProviderError: It failed, or did not answer in its own format.
        """


class InferenceProvider(Provider):
    """Serves language models, which answer questions and, if a query requests it, rewrite them."""

    @abstractmethod
    def models(self) -> list[str]:
        """Return the names of the models that the operator configured, without loading them."""

    def sees_images(self, model: str) -> bool:
        """Return True if a model reads images in messages; False by default."""
        return False

    @abstractmethod
    def chat(self, request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        """Stream the answer of a model of `models()`. Ending the iteration ends the model's work.

        Args:
            request: `stream` and `stream_options` have no effect.

        Yields:
            Objects `chat.completion.chunk`. The last one has `usage` if the model counts tokens.

        Raises:
            NotFound: The model is not configured.
            Unavailable, ProviderTimeout: The model cannot be reached, or is too slow.
            ProviderError: The model refused, or did not answer with such objects.
        """

    async def complete(self, model: str, prompt: str, *, max_tokens: int = 128) -> str:
        """Return a model's answer to one user message at temperature 0, as unchecked text.

        Args:
            max_tokens: Maximum length of the answer; the default suits a rewritten question.

        Returns:
            The unmodified answer, possibly empty.

        Raises:
            NotFound, ProviderError: See `chat`.
        """
        request = {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "temperature": 0,
        }
        async with aclosing(self.chat(request)) as chunks:
            return "".join([delta_text(chunk) async for chunk in chunks])


@dataclass(frozen=True, slots=True)
class QuotedText:
    """A text that a model can quote.

    Attributes:
        text: A passage, as a context shows it.
        language: The language of its vector DB, by English name.
        score: The score of its best chunk, in [0, 1].
        embedder: The embedder of its vector DB; None if that is searched by words alone.
    """

    text: str
    score: float
    language: str
    embedder: Embedder | None


@dataclass(frozen=True, slots=True)
class Quote:
    """A sentence of a text.

    Attributes:
        text: The place of the text in the call, from 0.
        start, end: Characters of the text.
    """

    text: int
    start: int
    end: int


class QuotingProvider(InferenceProvider):
    """Serves models that write nothing themselves: they answer with sentences of the sources."""

    @abstractmethod
    async def quote(
        self, question: str, texts: Sequence[QuotedText], confidence: float | None
    ) -> list[Quote]:
        """Return the sentences that answer a question, in the order of the texts.

        Args:
            question: As the user asked it.
            texts: The passages that were found, best first.
            confidence: The confidence of the search, in [0, 1]; None if unknown.

        Returns:
            The sentences; none if no text answers the question.

        Raises:
            ProviderError: An embedder failed.
        """

    def chat(self, request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        """Refuse a chat without sources.

        Raises:
            InvalidRequest: Always.
        """
        raise nothing_to_quote(request["model"])


def nothing_to_quote(model: str) -> InvalidRequest:
    """Return the refusal of a model that quotes, if a request searches no vector DB."""
    return InvalidRequest(
        f"The model {model!r} quotes the sources of a search, and the request has no search.",
        hint="Name a vector DB: the model corral/ID, or the tool file_search.",
        field="model",
    )


def delta_text(chunk: ChatChunk) -> str:
    """Return the text that a chunk adds to the first choice; "" if it adds none."""
    choices = chunk.get("choices") or [{}]
    return (choices[0].get("delta") or {}).get("content") or ""
