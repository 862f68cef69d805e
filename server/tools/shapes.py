"""Arguments and answers of the tools that read."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, Field

from corral.api.filters import WireFilter
from corral.api.vector_dbs import SearchMode
from corral.api.wire import Identifier, NullsAreDefaults

Scope = Annotated[
    list[Identifier],
    Field(
        default_factory=list,
        description="Vector DBs to search. null: all, or those that the operator chose.",
    ),
]
Mode = Annotated[
    SearchMode | None,
    Field(description="vector: by meaning; keyword: by words; hybrid: both. null: as registered."),
]
Filters = Annotated[
    WireFilter | None, Field(description="Only chunks whose metadata passes. null: all.")
]


class SearchArguments(NullsAreDefaults):
    """Arguments of `search`."""

    query: str = Field(min_length=1, description="A question or words, in any language.")
    vector_db_ids: Scope
    mode: Mode = None
    filters: Filters = None
    max_results: int = Field(default=10, ge=1, le=100, description="Most documents returned.")


class SearchResult(BaseModel):
    """A document that was found."""

    id: str = Field(description="Pass it to fetch.")
    title: str
    url: str = Field(description="Where people can open it.")
    text: str = Field(description="Its passage that fits best.")
    score: float = Field(description="Score in [0, 1]; higher is better.")
    vector_db_id: str


class SearchAnswer(BaseModel):
    """Documents, best first."""

    results: list[SearchResult]


class FetchArguments(NullsAreDefaults):
    """Arguments of `fetch`."""

    id: str = Field(min_length=1, description="An id that search returned.")
    offset: int = Field(
        default=0, ge=0, description="Chunks to pass over: next_offset of the answer before."
    )


class FetchAnswer(BaseModel):
    """A document."""

    id: str
    title: str
    text: str = Field(description="All of its text, or a part if it is very long.")
    url: str
    metadata: dict[str, Any] = Field(
        description="The document's own, and next_offset if there is more text."
    )


class QuestionArguments(NullsAreDefaults):
    """Arguments of `rag_query`."""

    question: str = Field(min_length=1, description="A question or words, in any language.")
    vector_db_ids: Scope
    max_tokens: int = Field(default=4096, ge=64, le=1_000_000, description="Budget of the context.")
    max_chunks: int = Field(default=8, ge=1, le=1000, description="Most chunks in the context.")
    mode: Mode = None
    filters: Filters = None


class Citation(BaseModel):
    """The source of a marker in the context."""

    marker: str = Field(description="Such as [1].")
    id: str = Field(description="Pass it to fetch.")
    title: str
    place: str = Field(default="", description="Such as page 3; empty if unknown.")
    url: str = Field(description="Where people can open it.")
    score: float
    vector_db_id: str


EmptyBecause: TypeAlias = Literal["nothing_found", "nothing_relevant", "budget"]


class QuestionAnswer(BaseModel):
    """A context for answering a question; cite its markers."""

    context: str = Field(description="Empty where `reason` says why.")
    reason: EmptyBecause | None = Field(
        default=None,
        description="Why the context is empty: no chunk matched, none was relevant enough, or "
        "max_tokens is too small for the best one. null: it is not empty.",
    )
    confidence: float | None = Field(
        default=None, description="How likely an answer was found, in [0, 1]; null: not known."
    )
    citations: list[Citation]
    token_count: int = Field(description="Tokens of the context, never above max_tokens.")


class NoArguments(NullsAreDefaults):
    """No arguments."""


class NameArguments(NullsAreDefaults):
    """Arguments of `get_vector_db`."""

    vector_db_id: Identifier = Field(description="One that list_vector_dbs names.")


class VectorDBSummary(BaseModel):
    """A vector DB."""

    vector_db_id: str
    name: str
    search_mode: SearchMode
    language: str
    embedding_model: str


class VectorDBDetails(VectorDBSummary):
    """A vector DB with the size of what it holds."""

    provider_id: str
    chunk_count: int
    document_count: int


class VectorDBSummaries(BaseModel):
    """The vector DBs that the caller can search, by id."""

    vector_dbs: list[VectorDBSummary]
