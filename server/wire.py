"""Requests and replies that exist only on the wire; the rest are the contract's own models."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator

from corral.api.chunks import (
    MAX_ID_LENGTH,
    Chunk,
    Identifier,
    InterleavedText,
    Strict,
    TextItem,
    content_text,
    strip_nul,
)
from corral.api.fusion import Explanation
from corral.api.hits import QueryChunksResponse, Step
from corral.api.options import MaxChunks, RetrievalOptions
from corral.api.rag import RAGDocument, RAGQueryConfig
from corral.providers.config import DocumentLimits, Limits
from corral.providers.copying import MAX_BATCH, WRITTEN_AT_ONCE

KNOWLEDGE_SEARCH = "knowledge_search"
"""The tool's name, as agents of Llama Stack know it."""
RAG_TOOL_GROUP = "builtin::rag"
"""The group that Llama Stack lists it in."""


T = TypeVar("T")
Listed: TypeAlias = Annotated[list[T], Field(fail_fast=True)]
"""A list that is refused at its first bad item: to note millions of them costs minutes and
gigabytes (64 MiB of `[],` did)."""


def _texts(content: Any) -> Any:
    return [content_text(item) for item in (content if isinstance(content, list) else [content])]


InterleavedTexts: TypeAlias = Annotated[
    Listed[Annotated[str, AfterValidator(strip_nul)]],
    BeforeValidator(_texts, json_schema_input_type=str | TextItem | list[str | TextItem]),
]
"""The texts of an interleaved content, apart: `query_generator_config.separator` joins them."""


def _refuse_expiry(ttl_seconds: Any) -> None:
    if ttl_seconds is not None:
        raise ValueError("chunks do not expire here; leave ttl_seconds out")


class ErrorDetail(BaseModel):
    """One finding where a request breaks its schema."""

    loc: list[str | int]
    msg: str
    type: str


class ErrorDetails(BaseModel):
    """All findings (the first 20)."""

    errors: list[ErrorDetail]


class Error(BaseModel):
    """What is wrong and what to do about it."""

    message: str = Field(description="The field, what was found and what to do.")
    type: Literal["invalid_request_error", "server_error"]
    param: str | None = Field(description="The field to blame, as a dotted path.")
    code: str | None = Field(description="A stable name for programs.")
    detail: ErrorDetails | None = Field(
        default=None, description="Only where the schema is broken."
    )


class ErrorBody(BaseModel):
    """The body of every 4xx and 5xx."""

    error: Error
    detail: str = Field(description="The message once more.")


class CopyRequest(Strict):
    """One step of a copy. The first one, without `after`, registers the target."""

    target_id: Identifier = Field(description="The copy; registered like the source.")
    provider_id: str | None = Field(
        default=None,
        description="Where the target is, or is to be; null: the source's own provider.",
    )
    after: str = Field(
        default="",
        max_length=MAX_ID_LENGTH,
        description="`last_id` of the step before; empty: begin.",
    )
    limit: int = Field(
        default=WRITTEN_AT_ONCE, ge=1, le=MAX_BATCH, description="Chunks to go through."
    )


class UnregisterReply(BaseModel):
    """What a deletion could not reach."""

    note: str = Field(description="What stays behind, and where.")


class CopyReply(BaseModel):
    """What a step did, and where the next one begins."""

    seen: int = Field(description="Chunks that the step went through.")
    copied: int = Field(description="Those of them that were not in the target as they are.")
    last_id: str = Field(description="`after` of the next step.")
    done: bool = Field(description="Whether there is no next step.")
    total: int = Field(description="Chunks in the source, now.")


class VerifyCopyRequest(Strict):
    """A copy to be compared with its source."""

    target_id: Identifier


class VerifyCopyReply(BaseModel):
    """A copy that is good: what was compared."""

    source_count: int
    target_count: int
    sampled: int = Field(description="Chunks that were compared and searched for.")
    exact: bool = Field(description="Whether both sides search vectors exactly, always.")
    vector_overlap: float | None = Field(
        description="Mean share of the hits that both sides found, of vector queries."
    )
    keyword_overlap: float | None = Field(description="The same of keyword queries.")


class InsertedChunk(Chunk):
    """A piece of text with its metadata; equal chunk_id means the same chunk."""

    embedding: Listed[float] | None = Field(
        default=None,
        description="As many numbers as the model has dimensions; null: computed here.",
    )
    # Their clients send these two; what is stored and returned is the same without them.
    mime_type: str | None = Field(
        default=None,
        max_length=255,
        exclude=True,
        description="Accepted and not stored: content is text.",
    )
    stored_chunk_id: Identifier | None = Field(
        default=None,
        exclude=True,
        description="`chunk_id`, as Llama Stack's clients from 0.2.13 name it.",
    )

    @model_validator(mode="before")
    @classmethod
    def _named_by_either(cls, data: Any) -> Any:
        given = data.get("stored_chunk_id") if isinstance(data, dict) else None
        if not (given and isinstance(given, str)):
            return data
        if data.get("chunk_id") not in (None, "", given):
            raise ValueError("chunk_id and stored_chunk_id name the same thing and differ")
        return {**data, "chunk_id": given}


class InsertChunksRequest(Strict):
    """Chunks to store, all or none; one whose chunk_id exists already replaces it."""

    vector_db_id: Identifier
    chunks: Listed[InsertedChunk] = Field(
        description="With or without an embedding; where it is absent the server computes it. "
        "At most `server.limits.max_chunks_per_insert`."
    )
    ttl_seconds: Annotated[None, BeforeValidator(_refuse_expiry)] = Field(
        default=None, description="Chunks do not expire: anything but null is refused."
    )


class QueryParams(RetrievalOptions):
    """How to search; what is absent or null is as the vector DB was registered."""

    max_chunks: MaxChunks = Field(
        default=3,
        description="Most chunks wanted, within `server.limits.max_k`; `auto`: the root of the "
        "number of chunks.",
    )

    @model_validator(mode="before")
    @classmethod
    def _nulls_are_defaults(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None}
        return data


class QueryChunksRequest(Strict):
    """A question to one vector DB."""

    vector_db_id: Identifier
    query: InterleavedText
    params: QueryParams | None = None


class QueryChunksReply(BaseModel):
    """The best chunks, best first; `scores` in [0, 1] and parallel to `chunks`."""

    chunks: list[Chunk]
    scores: list[float]
    notes: list[str] = Field(
        default_factory=list,
        exclude_if=lambda notes: not notes,
        description="What the caller has to know, such as that a re-ranker was not reached.",
    )

    @classmethod
    def of(cls, found: QueryChunksResponse) -> QueryChunksReply:
        """Return the wire's form of an index's answer."""
        return cls(chunks=found.chunks, scores=found.scores, notes=found.notes)


class ExplainedReply(QueryChunksReply):
    """The reply where `explain` was asked for."""

    explanations: list[Explanation]
    steps: list[Step] = Field(description="What each step did to the candidates.")

    @classmethod
    def of(cls, found: QueryChunksResponse) -> ExplainedReply:
        """Return the wire's form of an index's answer."""
        why = [hit.explanation for hit in found.hits]
        return cls(
            chunks=found.chunks,
            scores=found.scores,
            notes=found.notes,
            explanations=why,
            steps=found.steps,
        )


class InsertDocumentsRequest(Strict):
    """Documents to split, embed and store; one whose document_id exists already replaces it."""

    vector_db_id: Identifier
    documents: Listed[RAGDocument] = Field(
        description="At most `server.limits.max_documents_per_insert`."
    )
    chunk_size_in_tokens: int | None = Field(
        default=None, ge=1, le=8192, description="null: as the vector DB was registered."
    )
    overlap_in_tokens: int | None = Field(
        default=None, ge=0, le=4096, description="null: as the vector DB was registered."
    )
    skip_unchanged: bool = Field(
        default=False,
        description="Leave documents alone that are stored already and would be stored the same.",
    )
    same_origin_only: bool = Field(
        default=False,
        description="Refuse with 409, and store nothing, where a document would replace one of "
        "another `origin`.",
    )


class InsertDocumentsReply(BaseModel):
    """What an insert did."""

    chunks: dict[str, int] = Field(description="Number of chunks by document_id.")
    unchanged: list[str] = Field(description="Documents that were left alone.")
    unread: dict[str, list[str]] = Field(
        description="By document_id, what could not be read: `2 pictures`, `comments`."
    )
    notes: list[str] = Field(
        description="What else to know, such as that chunks are longer than the model reads."
    )


class LimitsReply(BaseModel):
    """What the operator allows, as run.yaml has it."""

    server: Limits = Field(description="Of one request: `server.limits`.")
    document: DocumentLimits = Field(description="Of one document: `rag.document_limits`.")


class RAGQueryRequest(Strict):
    """A question to one or several vector DBs, answered by a context within a token budget."""

    content: InterleavedTexts
    vector_db_ids: Listed[Identifier] = Field(
        min_length=1, description="At most `server.limits.max_vector_dbs_per_query`."
    )
    query_config: RAGQueryConfig | None = None


class KnowledgeSearchArguments(Strict):
    """The arguments of `knowledge_search`."""

    query: InterleavedTexts
    vector_db_ids: Listed[Identifier] = Field(min_length=1)
    query_config: RAGQueryConfig | None = None


class InvokeToolRequest(Strict):
    """A call of a tool by name."""

    tool_name: Literal["knowledge_search"]
    kwargs: KnowledgeSearchArguments


class ToolInvocationResult(BaseModel):
    """What a tool returned; `content` is empty where nothing was found."""

    content: list[TextItem]
    metadata: dict[str, Any]
    error_code: int | None = None
    error_message: str | None = None


class ToolParameter(BaseModel):
    """A parameter of a tool."""

    name: str
    parameter_type: str
    description: str
    required: bool = True


class ToolDef(BaseModel):
    """A tool, as an agent offers it to its model."""

    name: str
    description: str
    parameters: list[ToolParameter]
    toolgroup_id: str = RAG_TOOL_GROUP


class ToolList(BaseModel):
    """The tools that can be invoked."""

    data: list[ToolDef]


class HealthReply(BaseModel):
    """The server answers, so it is well; providers have their own health."""

    status: Literal["OK"] = "OK"


class VersionReply(BaseModel):
    """The version of the server."""

    version: str


class ProviderHealth(BaseModel):
    """Whether a provider can serve now, and if not, why."""

    status: Literal["OK", "Error"]
    message: str = ""


class ProviderInfo(BaseModel):
    """A configured provider."""

    api: str = Field(
        description="As Llama Stack's clients look for it: embedding models are `inference`."
    )
    kind: str = Field(description="Its section in run.yaml.")
    provider_id: str
    provider_type: str
    config: dict[str, Any] = Field(description="Its settings, secrets masked.")
    health: ProviderHealth
    capabilities: dict[str, Any] | None = Field(
        default=None, description="What a vector_io provider can do."
    )


class ProviderType(BaseModel):
    """A provider type that is installed, configured or not."""

    api: str = Field(description="As in the list of configured providers.")
    kind: str = Field(description="Its section in run.yaml.")
    provider_type: str
    description: str
    capabilities: dict[str, Any] | None = Field(
        default=None, description="What a vector_io provider can do."
    )


class BrokenProvider(BaseModel):
    """An installed provider that cannot be loaded."""

    name: str = Field(description="Its entry point.")
    reason: str


class ProviderList(BaseModel):
    """The configured providers, and the types that could be configured."""

    data: list[ProviderInfo]
    types: list[ProviderType]
    broken: list[BrokenProvider] = Field(description="Installed, but their import fails.")


class Model(BaseModel):
    """An embedding model that vector DBs can be registered with."""

    identifier: str
    provider_resource_id: str
    provider_id: str
    type: Literal["model"] = "model"
    model_type: Literal["embedding"] = "embedding"
    metadata: dict[str, Any] = Field(
        description="`embedding_dimension`, `max_tokens` and whether it is the `default`."
    )


class ModelList(BaseModel):
    """The embedding models."""

    data: list[Model]
