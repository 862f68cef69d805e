"""Requests of OpenAI's wire: vector stores and their files, with OpenAI's limits."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from corral.api.chunks import Acl
from corral.api.filters import COMPARISONS, COMPOUNDS, WireFilter
from corral.api.options import MAX_QUERIES, OrderBy, RankingOptions
from corral.api.rankers import Ranker
from corral.api.reranker import Rerank
from corral.api.vector_dbs import (
    ChunkingConfig,
    SearchMode,
    SearchOverrides,
    language_name,
)
from corral.api.wire import NullsAreDefaults, Storable, Strict
from corral.server.llama_stack.wire import Listed, RegisteredEmbedding

MAX_PAIRS = 16
MAX_KEY = 64
MAX_VALUE = 512
MAX_FILES = 2000
"""Maximum number of files in a batch."""
MAX_EXPIRY_DAYS = 365

SET_BY_SERVER = frozenset(
    {"file_id", "filename", "document_id", "token_count", "metadata_token_count"}
)
"""Metadata keys of a file's chunks that attributes must not use."""

EXTENSIONS = (
    "provider_id",
    "embedding_model",
    "embedding_dimension",
    "search_mode",
    "ranker",
    "language",
)
"""Settings of a registration that a store's metadata may contain."""

AUTO = ChunkingConfig(chunk_size_in_tokens=800, overlap_in_tokens=400)
"""The sizes of the strategy `auto`, if the embedding model reads this many tokens."""


def _not_set_by_server(attributes: dict[str, Any]) -> dict[str, Any]:
    for name in sorted(SET_BY_SERVER & attributes.keys()):
        raise ValueError(f"{name} is set by the server; rename the attribute")
    return attributes


Key = Annotated[Storable, Field(min_length=1, max_length=MAX_KEY)]
Text = Annotated[Storable, Field(max_length=MAX_VALUE)]
Number = Annotated[float, Field(allow_inf_nan=False)]

StoreMetadata: TypeAlias = Annotated[dict[Key, Text], Field(max_length=MAX_PAIRS)]
"""Pairs of text that clients store with a vector store."""

Attributes: TypeAlias = Annotated[
    dict[Key, Text | bool | int | Number],
    Field(max_length=MAX_PAIRS),
    AfterValidator(_not_set_by_server),
]
"""Attributes by which a file's chunks can be filtered."""

FileId: TypeAlias = Annotated[str, Field(min_length=1, max_length=255)]


class ExpiresAfter(Strict):
    """Days from the last use of a store until it expires."""

    anchor: Literal["last_active_at"]
    days: int = Field(ge=1, le=MAX_EXPIRY_DAYS)


class AutoChunking(Strict):
    """Chunks of 800 tokens that overlap by 400, or smaller ones if the model reads fewer tokens."""

    type: Literal["auto"]


class StaticSizes(Strict):
    """Sizes of chunks, in tokens."""

    # OpenAI requires both; Llama Stack's clients may omit them.
    max_chunk_size_tokens: int = Field(default=800, ge=100, le=4096)
    chunk_overlap_tokens: int = Field(default=400, ge=0, le=2048)

    @model_validator(mode="after")
    def _at_most_half(self) -> Self:
        if self.chunk_overlap_tokens * 2 > self.max_chunk_size_tokens:
            raise ValueError(
                f"chunk_overlap_tokens must be <= {self.max_chunk_size_tokens // 2}, half of "
                f"max_chunk_size_tokens (got {self.chunk_overlap_tokens})"
            )
        return self


class StaticChunking(Strict):
    """Chunks of these sizes."""

    type: Literal["static"]
    static: StaticSizes


def _not_contextual(strategy: Any) -> Any:
    """Refuse Llama Stack's strategy `contextual`, with the reason."""
    if isinstance(strategy, dict) and strategy.get("type") == "contextual":
        raise ValueError(
            "the type contextual needs a language model (contextual.model_id) that writes a "
            "context for each chunk, which Corral does not support; send auto or static"
        )
    return strategy


Chunking: TypeAlias = Annotated[
    AutoChunking | StaticChunking, Field(discriminator="type"), BeforeValidator(_not_contextual)
]


def chunking_config(strategy: AutoChunking | StaticChunking | None) -> ChunkingConfig | None:
    """Return the sizes of a strategy; None for `auto`."""
    if not isinstance(strategy, StaticChunking):
        return None
    return ChunkingConfig(
        chunk_size_in_tokens=strategy.static.max_chunk_size_tokens,
        overlap_in_tokens=strategy.static.chunk_overlap_tokens,
    )


def _ranker(value: Any) -> Any:
    """Return a ranker, given as a name or as JSON text, as an object."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("{"):
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError("not valid JSON") from None
    return {"type": value}


NamedRanker: TypeAlias = Annotated[
    Ranker, BeforeValidator(_ranker, json_schema_input_type=str | dict[str, Any])
]


class CreateVectorStore(NullsAreDefaults):
    """A vector store to create, with its search settings."""

    name: str | None = Field(default=None, max_length=255)
    description: str | None = Field(default=None, max_length=MAX_VALUE)
    file_ids: Listed[FileId] = Field(
        default_factory=list, max_length=MAX_FILES, description="Files to attach at once."
    )
    chunking_strategy: Chunking | None = Field(default=None, description="For `file_ids`.")
    expires_after: ExpiresAfter | None = None
    metadata: StoreMetadata | None = Field(
        default=None,
        description=f"At most {MAX_PAIRS} pairs. {', '.join(EXTENSIONS)} in it are also settings.",
    )
    provider_id: str | None = Field(default=None, description="null: the default provider.")
    embedding_model: str | None = Field(default=None, description="null: the default model.")
    embedding_dimension: int | None = Field(default=None, ge=1, le=16_000)
    provider_vector_db_id: str | None = Field(
        default=None, max_length=255, description="Also `provider_vector_store_id`."
    )
    provider_vector_store_id: str | None = Field(default=None, max_length=255, exclude=True)
    search_mode: SearchMode | None = None
    ranker: NamedRanker | None = None
    language: Annotated[str, AfterValidator(language_name)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _settings_in_metadata(cls, data: Any) -> Any:
        """Take the settings out of the metadata, which stays unchanged."""
        metadata = data.get("metadata") if isinstance(data, dict) else None
        if not isinstance(metadata, dict):
            return data
        settings = {name: metadata[name] for name in EXTENSIONS if name in metadata}
        settings |= _as_number(settings.get("embedding_dimension"))
        for name, value in settings.items():
            if data.get(name) not in (None, value):
                raise ValueError(f"{name} and metadata.{name} differ; send one of them")
        return {**settings, **{name: value for name, value in data.items() if value is not None}}

    @model_validator(mode="after")
    def _one_name_there(self) -> Self:
        there = self.provider_vector_store_id
        if there is not None and self.provider_vector_db_id not in (None, there):
            raise ValueError(
                "provider_vector_db_id and provider_vector_store_id differ; send one of them"
            )
        return self


def _as_number(dimension: Any) -> dict[str, int]:
    """Return the dimension as a number if the metadata has it as text, else None."""
    is_text = isinstance(dimension, str) and dimension.isascii() and len(dimension) < 10
    return {"embedding_dimension": int(dimension)} if is_text and dimension.isdecimal() else {}


class UpdateVectorStore(Strict):
    """Fields to change; absent ones stay, null removes a value."""

    name: str | None = Field(default=None, max_length=255)
    description: str | None = Field(default=None, max_length=MAX_VALUE)
    expires_after: ExpiresAfter | None = None
    metadata: StoreMetadata | None = None


def _spelled_out(data: Any) -> Any:
    """Convert `{key: value}`, Llama Stack's shorthand, to a filter in OpenAI's format."""
    if not isinstance(data, dict) or not data or data.get("type") in (*COMPARISONS, *COMPOUNDS):
        return data
    if data.keys() & {"key", "value", "filters"}:  # a malformed filter in OpenAI's format
        return data
    parts = [{"type": "eq", "key": key, "value": value} for key, value in data.items()]
    return {"type": "and", "filters": parts}


class SearchVectorStore(SearchOverrides, NullsAreDefaults):
    """A question to one vector store."""

    query: str | Annotated[Listed[str], Field(min_length=1, max_length=MAX_QUERIES + 1)] = Field(
        description="One query or several; the results of several are fused."
    )
    rewrite_query: bool = Field(
        default=False,
        description="Rewrite the query with the first configured language model; an error if "
        "there is none.",
    )
    max_num_results: int = Field(default=10, ge=1, le=50)
    filters: Annotated[WireFilter, BeforeValidator(_spelled_out)] | None = Field(
        default=None,
        description="`{type: eq|ne|gt|gte|lt|lte|in|nin, key, value}` on attributes, "
        "`{type: and|or, filters: [...]}`; `{key: value, ...}` means that all are equal.",
    )
    order_by: OrderBy | None = Field(
        default=None,
        description="For an empty query: order the chunks that pass `filters` by an attribute.",
    )
    ranking_options: RankingOptions | None = None
    search_mode: SearchMode | None = Field(default=None, description="null: as registered.")
    ranker: NamedRanker | None = Field(default=None, description="null: as registered.")
    rerank: Rerank | None = Field(default=None, description="null: as registered.")
    explain: bool = Field(default=False, description="Explain the score of each result.")


def _no_options(options: dict[str, Any]) -> dict[str, Any]:
    if options:
        raise ValueError("there are no options for reading files; leave it out")
    return options


class Attaching(RegisteredEmbedding, NullsAreDefaults):
    """Fields that Llama Stack's clients add to a request that attaches files."""

    provider_id: str | None = Field(
        default=None, max_length=255, exclude=True, description="Must be the registered one."
    )
    options: Annotated[dict[str, Any], AfterValidator(_no_options)] | None = Field(
        default=None, exclude=True, description="Must be {}: there are no options for reading."
    )


class AttachFile(Attaching):
    """A file to attach to a vector store."""

    file_id: FileId
    attributes: Attributes | None = None
    acl: Acl | None = Field(
        default=None,
        description="Who may read it: a reader needs one of these tokens; null: the vector DB's "
        "`default_acl`.",
    )
    chunking_strategy: Chunking | None = None


class UpdateAttributes(Strict):
    """The new attributes of a file, which replace the old ones."""

    attributes: Attributes | None


class CreateFileBatch(Attaching):
    """Files to attach together: `file_ids`, or `files` with their own settings."""

    file_ids: Listed[FileId] | None = Field(default=None, min_length=1, max_length=MAX_FILES)
    files: Listed[AttachFile] | None = Field(default=None, min_length=1, max_length=MAX_FILES)
    attributes: Attributes | None = Field(default=None, description="For all `file_ids`.")
    chunking_strategy: Chunking | None = Field(default=None, description="For all `file_ids`.")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.file_ids is None) == (self.files is None):
            raise ValueError("send either file_ids or files")
        if self.files is not None and (self.attributes or self.chunking_strategy):
            raise ValueError("with files, set attributes and chunking_strategy for each file")
        return self

    @property
    def each(self) -> list[AttachFile]:
        """The files one by one."""
        if self.files is not None:
            return self.files
        return [
            AttachFile(
                file_id=file_id,
                attributes=self.attributes,
                chunking_strategy=self.chunking_strategy,
            )
            for file_id in self.file_ids or ()
        ]
