"""Requests and replies that exist only on the wire; others are the contract's own models."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    model_validator,
)

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.confidence import Evidence
from corral.api.errors import InvalidRequest
from corral.api.fusion import Explanation
from corral.api.hits import QueryChunksResponse, SearcherState, Step
from corral.api.options import MaxChunks, RetrievalOptions
from corral.api.rag import RAGDocument, RAGQueryConfig
from corral.api.vector_dbs import SplitOn, VectorDB
from corral.api.wire import (
    Identifier,
    InterleavedText,
    NullsAreDefaults,
    Strict,
    TextItem,
    content_text,
    strip_nul,
)
from corral.server.access.acting import AsUser

KNOWLEDGE_SEARCH = "knowledge_search"
"""The tool's name for agents of Llama Stack."""
RAG_TOOL_GROUP = "builtin::rag"
"""The group that Llama Stack lists it in."""


MAX_TTL_SECONDS = 100 * 366 * 86_400
"""Maximum lifetime of an expiring chunk: a century."""

T = TypeVar("T")
Listed: TypeAlias = Annotated[list[T], Field(fail_fast=True)]
"""A list that is refused at its first bad item: recording millions of them takes minutes and
gigabytes (64 MiB of `[],` did)."""


def _texts(content: Any) -> Any:
    return [content_text(item) for item in (content if isinstance(content, list) else [content])]


InterleavedTexts: TypeAlias = Annotated[
    Listed[Annotated[str, AfterValidator(strip_nul)]],
    BeforeValidator(_texts, json_schema_input_type=str | TextItem | list[str | TextItem]),
]
"""The separate texts of an interleaved content; `query_generator_config.separator` joins them."""


class CountedVectorDB(VectorDB):
    """A registered vector DB, with counts if you asked for them and the backend answered."""

    default_acl: list[str] | None = Field(  # type: ignore[assignment]  # None for readers
        exclude_if=lambda acl: acl is None,
        description="Who may read a chunk without an acl. Returned only to writers and admins.",
    )
    chunk_count: int | None = Field(default=None, exclude_if=lambda count: count is None)
    document_count: int | None = Field(
        default=None,
        exclude_if=lambda count: count is None,
        description="Number of different `document_id`s in the metadata of its chunks.",
    )
    disk_bytes: int | None = Field(
        default=None,
        exclude_if=lambda size: size is None,
        description="Size of its files on this machine, if it has any. Returned only to admins.",
    )
    searcher: SearcherState | None = Field(
        default=None,
        exclude_if=lambda state: state is None,
        description="How its embeddings are compared: `exact`, or by an approximate index of so "
        "many chunks with this recall@10. Returned only to admins, if the engine reports it.",
    )


class VectorDBList(BaseModel):
    """All registered vector DBs, in order of identifier."""

    data: list[CountedVectorDB]


class UnregisterReply(BaseModel):
    """Data that could not be deleted."""

    note: str = Field(description="What remains, and where.")


class RegisteredEmbedding(BaseModel):
    """Fields of a vector DB's registration that Llama Stack's newer clients repeat."""

    embedding_model: str | None = Field(
        default=None, max_length=255, exclude=True, description="Must be the registered one."
    )
    embedding_dimension: int | None = Field(
        default=None, exclude=True, description="Must be the registered one."
    )


def check_registered(
    given: BaseModel, vector_db: VectorDB, at: str = "", *, ignored: Collection[str | None] = ()
) -> None:
    """Refuse settings that differ from a vector DB's registration.

    Args:
        given: Part of a request; may have `embedding_model`, `embedding_dimension` and
            `provider_id`. Null matches anything.
        vector_db: The vector DB of the request.
        at: The path of `given` in the request, such as "chunks[0].".
        ignored: Values to ignore, such as a client's own model names.

    Raises:
        InvalidRequest: A value differs; the message has both values.
    """
    for name in ("embedding_model", "embedding_dimension", "provider_id"):
        value, registered = getattr(given, name, None), getattr(vector_db, name)
        if value not in (None, registered, *ignored):
            raise InvalidRequest(
                f"{at}{name} must be {registered!r}, which {vector_db.identifier!r} is registered "
                f"with (got {value!r}).",
                hint="Use a vector DB that is registered with yours.",
                field=f"{at}{name}",
            )


class EmbeddedChunk(Chunk):
    """A chunk as Llama Stack's newer clients read it: they refuse one that lacks a field."""

    embedding: list[float] = Field(
        default_factory=list,
        description="[] unless `include_embeddings` is set.",
    )
    chunk_metadata: ChunkMetadata = Field(default_factory=ChunkMetadata)
    embedding_model: str
    embedding_dimension: int

    @classmethod
    def of(cls, chunk: Chunk, vector_db: VectorDB) -> EmbeddedChunk:
        """Return a chunk of a vector DB in this form."""
        return cls.model_construct(
            **{name: value for name, value in chunk if value is not None},
            embedding_model=vector_db.embedding_model,
            embedding_dimension=vector_db.embedding_dimension,
        )


class InsertedChunk(RegisteredEmbedding, Chunk):
    """A piece of text with its metadata; equal chunk_id means the same chunk."""

    embedding: Listed[float] | None = Field(
        default=None,
        description="One number for each of the model's dimensions; null: the server computes it.",
    )
    embedding_model: str | None = Field(
        default=None,
        max_length=255,
        exclude=True,
        description="Must not be another model of this server than the registered one; names that "
        "it does not know are ignored.",
    )
    # Newer clients send these two fields; they do not change what is stored and returned.
    mime_type: str | None = Field(
        default=None,
        max_length=255,
        exclude=True,
        description="Accepted and ignored: content is always text.",
    )
    stored_chunk_id: Identifier | None = Field(
        default=None,
        exclude=True,
        description="Another name for `chunk_id`, used by Llama Stack's clients from 0.2.13.",
    )

    @model_validator(mode="before")
    @classmethod
    def _named_by_either(cls, data: Any) -> Any:
        given = data.get("stored_chunk_id") if isinstance(data, dict) else None
        if not (given and isinstance(given, str)):
            return data
        if data.get("chunk_id") not in (None, "", given):
            raise ValueError("chunk_id and stored_chunk_id differ; send one of them")
        return {**data, "chunk_id": given}

    @model_validator(mode="after")
    def _document_has_a_name(self) -> InsertedChunk:
        if self.document_id == "":  # no route could address it, to list or to delete it
            raise ValueError("metadata.document_id is empty; leave it out, or name the document")
        return self


class OnVectorDB(Strict):
    """A request about one vector DB, which Llama Stack's newer clients call a vector store."""

    vector_db_id: Identifier = Field(description="Also `vector_store_id`.")

    _by_vector_store_id: bool = PrivateAttr(default=False)

    @model_validator(mode="wrap")
    @classmethod
    def _named_by_either(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not (isinstance(data, dict) and "vector_store_id" in data):
            return handler(data)
        rest = {name: value for name, value in data.items() if name != "vector_store_id"}
        if rest.setdefault("vector_db_id", data["vector_store_id"]) != data["vector_store_id"]:
            raise ValueError("vector_db_id and vector_store_id differ; send one of them")
        request = handler(rest)
        request._by_vector_store_id = True
        return request

    @property
    def is_newer(self) -> bool:
        """Return True for a request of a newer client, which sends `vector_store_id`."""
        return self._by_vector_store_id


class InsertChunksRequest(OnVectorDB):
    """Chunks to store, all or none; a chunk replaces the one with the same chunk_id."""

    chunks: Listed[InsertedChunk] = Field(
        description="With or without embeddings; the server computes missing ones. At most "
        "`server.limits.max_chunks_per_insert`."
    )
    ttl_seconds: int | None = Field(
        default=None,
        ge=1,
        le=MAX_TTL_SECONDS,
        description="Delete the chunks after this many seconds; null: keep them. A chunk's own "
        "`chunk_metadata.expires_at` wins.",
    )


class QueryParams(RetrievalOptions, NullsAreDefaults):
    """Search options; absent or null: as registered."""

    max_chunks: MaxChunks = Field(
        default=3,
        description="Maximum number of chunks, within `server.limits.max_k`; `auto`: the square "
        "root of the number of chunks.",
    )


class QueryChunksRequest(OnVectorDB):
    """A question to one vector DB."""

    query: InterleavedText
    params: QueryParams | None = None
    as_user: AsUser | None = Field(
        default=None,
        description="For admins: search as a reader with this name and these groups.",
    )


class QueryChunksReply(BaseModel):
    """The best chunks, best first; `scores` in [0, 1] and parallel to `chunks`."""

    chunks: list[EmbeddedChunk | Chunk] = Field(
        description="With `embedding_model` and `embedding_dimension` if the request says "
        "`vector_store_id`."
    )
    scores: list[float]
    notes: list[str] = Field(
        default_factory=list,
        exclude_if=lambda notes: not notes,
        description="Warnings, such as that a re-ranker could not be reached.",
    )
    confidence: float | None = Field(
        default=None,
        description="How likely the hits answer the question, in [0, 1]; unlike scores, "
        "comparable between questions. null: the vector DB's keyword index cannot "
        "tell.",
    )
    reason: Literal["nothing_relevant"] | None = Field(
        default=None,
        exclude_if=lambda reason: reason is None,
        description="Why there are no chunks: the confidence is below `min_confidence`.",
    )

    @classmethod
    def of(cls, response: QueryChunksResponse) -> QueryChunksReply:
        """Return the wire's form of an index's answer."""
        return cls(**{name: getattr(response, name) for name in cls.model_fields})


class ExplainedReply(QueryChunksReply):
    """The reply if `explain` is set."""

    explanations: list[Explanation]
    steps: list[Step] = Field(description="What each step did to the candidates.")
    evidence: Evidence = Field(description="The two numbers that the confidence combines.")

    @classmethod
    def of(cls, response: QueryChunksResponse) -> ExplainedReply:
        """Return the wire's form of an index's answer."""
        why = [hit.explanation for hit in response.hits]
        plain = {name: getattr(response, name) for name in QueryChunksReply.model_fields}
        return cls(**plain, explanations=why, steps=response.steps, evidence=response.evidence)


class InsertOptions(Strict):
    """Target and options of documents to insert."""

    vector_db_id: Identifier
    chunk_size_in_tokens: int | None = Field(
        default=None, ge=1, le=8192, description="null: as registered."
    )
    overlap_in_tokens: int | None = Field(
        default=None, ge=0, le=4096, description="null: as registered."
    )
    split_on: SplitOn | None = Field(
        default=None,
        description="Text at which chunks end, or a level of headings (1-6); empty: none. null: as "
        "registered.",
    )
    skip_unchanged: bool = Field(
        default=False,
        description="Skip documents that would be stored unchanged.",
    )
    same_origin_only: bool = Field(
        default=False,
        description="Fail with 409, and store nothing, if a document would replace one with "
        "another `origin`.",
    )


class InsertDocumentsRequest(InsertOptions):
    """Documents to split, embed and store; each replaces the one with the same document_id."""

    documents: Listed[RAGDocument] = Field(
        description="At most `server.limits.max_documents_per_insert`."
    )


class InsertDocumentsReply(BaseModel):
    """The result of an insert."""

    chunks: dict[str, int] = Field(description="Number of chunks by document_id.")
    unchanged: list[str] = Field(
        description="Ids of documents that were skipped because they are unchanged."
    )
    unread: dict[str, list[str]] = Field(
        description="By document_id, parts that could not be read, such as `2 pictures` or "
        "`comments`."
    )
    notes: list[str] = Field(
        description="Warnings, such as that chunks are longer than the model's window."
    )


class RAGQueryRequest(Strict):
    """A question to one or more vector DBs, answered with a context within a token budget."""

    content: InterleavedTexts
    vector_db_ids: Listed[Identifier] = Field(
        min_length=1, description="At most `server.limits.max_vector_dbs_per_query`."
    )
    query_config: RAGQueryConfig | None = None
    as_user: AsUser | None = Field(
        default=None,
        description="For admins: search as a reader with this name and these groups.",
    )


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
    """The result of a tool; `content` is empty if nothing was found."""

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
