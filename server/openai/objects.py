"""Replies of OpenAI's wire: vector stores, their files, file batches, files, search results.

No field here has a request's limits or validators: a reply shows stored values, and must not fail
on values that requests may no longer have.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, Field

from corral.api.chunks import ChunkMetadata
from corral.api.fusion import Explanation
from corral.api.hits import Step

UnixSeconds = Annotated[int, Field(description="Unix seconds.")]
FileStatus = Literal["in_progress", "completed", "cancelled", "failed"]
Attributes: TypeAlias = dict[str, str | bool | int | float]


class FileCounts(BaseModel):
    """Number of files by status."""

    in_progress: int
    completed: int
    failed: int
    cancelled: int
    total: int


class ExpiresAfter(BaseModel):
    """Days from the last use of a store until it expires."""

    anchor: Literal["last_active_at"] = "last_active_at"
    days: int


class VectorStoreObject(BaseModel):
    """A vector store: a registered vector DB, as OpenAI's API sees it."""

    id: str
    object: Literal["vector_store"] = "vector_store"
    created_at: UnixSeconds
    name: str
    description: str | None
    usage_bytes: int = Field(description="Size of the texts and embeddings of its files.")
    file_counts: FileCounts
    status: Literal["expired", "in_progress", "completed"]
    expires_after: ExpiresAfter | None
    expires_at: UnixSeconds | None
    last_active_at: UnixSeconds
    metadata: dict[str, str] | None
    provider_id: str | None = Field(description="Provider of its chunks; null if it has expired.")
    embedding_model: str | None
    search_mode: str | None
    language: str | None


class StaticSizes(BaseModel):
    """Sizes of chunks, in tokens."""

    max_chunk_size_tokens: int
    chunk_overlap_tokens: int


class StaticStrategy(BaseModel):
    """Chunks of these sizes."""

    type: Literal["static"] = "static"
    static: StaticSizes


class AutoStrategy(BaseModel):
    """Chunks of an unknown size; under `/v1/openai/v1` only."""

    type: Literal["auto"] = "auto"


Strategy: TypeAlias = Annotated[StaticStrategy | AutoStrategy, Field(discriminator="type")]


class LastError(BaseModel):
    """Why a file failed."""

    code: Literal["server_error", "unsupported_file", "invalid_file"]
    message: str


class VectorStoreFileObject(BaseModel):
    """A file of a vector store."""

    id: str = Field(description="Id of the file.")
    object: Literal["vector_store.file"] = "vector_store.file"
    created_at: UnixSeconds
    vector_store_id: str
    usage_bytes: int
    status: FileStatus
    last_error: LastError | None
    attributes: Attributes = Field(
        description="The metadata that fits OpenAI's limits for attributes; the document has all."
    )
    chunking_strategy: Strategy
    filename: str
    progress: dict[str, Any] = Field(description="Pages, chunks, rate and time left.")


class FileBatchObject(BaseModel):
    """A batch of files attached together."""

    id: str
    object: Literal["vector_store.files_batch"] = "vector_store.files_batch"
    created_at: UnixSeconds
    vector_store_id: str
    status: FileStatus
    file_counts: FileCounts


class FileObject(BaseModel):
    """An uploaded file."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: UnixSeconds
    filename: str
    purpose: str
    status: Literal["uploaded", "processed", "error"]
    expires_at: UnixSeconds | None


class TextContent(BaseModel):
    """A piece of text."""

    type: Literal["text"] = "text"
    text: str


class StoredContent(TextContent):
    """A piece of a file's text, with other data of its chunk if the request includes them.

    The chunk's own text may be longer: it repeats the end of the piece before.
    """

    embedding: list[float] | None = Field(default=None, description="With `include_embeddings`.")
    chunk_metadata: ChunkMetadata | None = Field(
        default=None, description="With `include_metadata`."
    )
    metadata: dict[str, Any] | None = Field(default=None, description="With `include_metadata`.")


class FileContentPage(BaseModel):
    """The parsed text of a file, in parts to join."""

    object: Literal["vector_store.file_content.page"] = "vector_store.file_content.page"
    data: list[StoredContent]
    has_more: bool = False
    next_page: str | None = None


class SearchResult(BaseModel):
    """A chunk of a file, found by a search."""

    file_id: str
    filename: str
    score: float = Field(description="In [0, 1].")
    attributes: Attributes | None
    content: list[TextContent]
    explanation: Explanation | None = Field(
        default=None,
        exclude_if=lambda explanation: explanation is None,
        description="How its score was computed, if `explain` is set.",
    )


class SearchPage(BaseModel):
    """The results, best first."""

    object: Literal["vector_store.search_results.page"] = "vector_store.search_results.page"
    search_query: list[str] = Field(description="The query that was searched for.")
    data: list[SearchResult]
    has_more: bool = False
    next_page: str | None = None
    confidence: float | None = Field(
        default=None,
        exclude_if=lambda confidence: confidence is None,
        description="How likely the results answer the question, in [0, 1]; absent: not known.",
    )
    reason: str | None = Field(
        default=None,
        exclude_if=lambda reason: reason is None,
        description="`nothing_relevant` if the confidence is below `min_confidence`.",
    )
    notes: list[str] = Field(
        default_factory=list,
        exclude_if=lambda notes: not notes,
        description="Warnings, such as that a re-ranker could not be reached.",
    )
    steps: list[Step] | None = Field(
        default=None,
        exclude_if=lambda steps: steps is None,
        description="What each step did to the candidates, if `explain` is set.",
    )


class DeletedStore(BaseModel):
    """A deleted vector store."""

    id: str
    object: Literal["vector_store.deleted"] = "vector_store.deleted"
    deleted: Literal[True] = True


class DeletedStoreFile(BaseModel):
    """A file removed from a vector store; the file itself stays."""

    id: str
    object: Literal["vector_store.file.deleted"] = "vector_store.file.deleted"
    deleted: Literal[True] = True


class DeletedFile(BaseModel):
    """A deleted file."""

    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True
