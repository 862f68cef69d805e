"""The options of a query: how chunks are found and ordered, and how a context is made of them.

Each stands in a registration, as the vector DB's own way, or in a request, which goes before it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, StringConstraints

from corral.api.checks import MAX_K, MAX_QUERY_CHARACTERS
from corral.api.chunks import Strict
from corral.api.fusion import Ranker
from corral.api.reranker import Rerank
from corral.api.vector_dbs import Cutoff, QuerySyntax, SearchMode

MAX_QUERIES = 8
"""Most further phrasings of one question."""

MaxChunks: TypeAlias = Annotated[int, Field(ge=1, le=MAX_K)] | Literal["auto"]
"""How many chunks: a number, or `auto`, which is ceil(sqrt(chunks in the vector DB))."""


class RetrievalOptions(Strict):
    """How chunks are found and ordered; null: as the vector DB was registered."""

    mode: SearchMode | None = Field(None, description="null: the registered mode.")
    ranker: Ranker | None = Field(None, description="null: the registered ranker.")
    rerank: Rerank | None = Field(
        None,
        description="How the best chunks are ordered anew: mmr, bm25, model or none. null: as "
        "registered.",
    )
    cutoff: Cutoff | None = Field(
        None,
        description="gap: what comes after the largest drop of the score is left out. null: as "
        "registered.",
    )
    query_syntax: QuerySyntax | None = Field(
        None,
        description='web: "quoted phrases" have to be there, words after a minus must not; '
        "plain: the text has no signs. null: as registered.",
    )
    fuzzy: bool | None = Field(
        None,
        description="Whether the keyword leg also finds words spelled nearly like those of the "
        "query, on providers with that capability. null: as registered.",
    )
    queries: list[Annotated[str, StringConstraints(max_length=MAX_QUERY_CHARACTERS)]] = Field(
        default_factory=list,
        max_length=MAX_QUERIES,
        description="Further phrasings of the question: each is searched, the results are fused.",
    )
    filters: dict[str, Any] | None = Field(
        None,
        description="OpenAI-shaped: `{type: eq|ne|gt|gte|lt|lte|in|nin, key, value}`, "
        "`{type: and|or, filters: [...]}`. Applied before the best are taken.",
    )
    score_threshold: float | None = Field(
        0.0, ge=0, le=1, description="Keep final scores at or above it. null or 0: all."
    )
    include_embeddings: bool = Field(False, description="Whether chunks carry their embeddings.")
    explain: bool = Field(False, description="Whether the answer says why each chunk is there.")
