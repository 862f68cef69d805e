"""Re-ranking as a service: the configured models, BM25 and MMR, in Cohere's, Jina's and TEI's form.

BM25 reads the documents of one request alone, as it does among the candidates of a query.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray
from pydantic import BaseModel, Field, model_validator

from corral.api.chunks import Chunk
from corral.api.embedder import Embedder
from corral.api.errors import InvalidRequest
from corral.api.fusion import Explanation
from corral.api.hits import Hit
from corral.api.reranker import BM25Rerank, MMRRerank, Reranker
from corral.api.vector_dbs import LANGUAGES, VectorDB, language_name
from corral.api.wire import InterleavedText, Strict
from corral.providers.config import Limits
from corral.providers.rag.tokens import tokenizer
from corral.providers.rerank import reranker_for
from corral.providers.stack import Stack
from corral.server.access.roles import READER
from corral.server.applications.forms import CohereError, refusals
from corral.server.errors import ERRORS
from corral.server.limits import check_count
from corral.server.routing import ContractRoute, LimitsOf, StackOf

MAX_DOCUMENT_TOKENS = 1_000_000

router = APIRouter(
    tags=["Models"], route_class=ContractRoute, responses=ERRORS, dependencies=[READER]
)


class _Request(Strict):
    model: str = Field(
        min_length=1,
        max_length=255,
        description="A configured re-ranking model; bm25, also bm25:LANGUAGE; or mmr.",
    )
    query: str = Field(min_length=1)
    documents: list[InterleavedText] = Field(
        min_length=1, description="At most `server.limits.max_k`."
    )
    top_n: int | None = Field(default=None, ge=1, description="Most results; null: all.")

    @model_validator(mode="before")
    @classmethod
    def _objects_are_texts(cls, data: Any) -> Any:
        """Read `{"text": ...}`, which both services accept, as its text."""
        documents = data.get("documents") if isinstance(data, dict) else None
        if not isinstance(documents, list):
            return data
        texts = [
            each["text"] if isinstance(each, dict) and set(each) == {"text"} else each
            for each in documents
        ]
        return {**data, "documents": texts}


class JinaRequest(_Request):
    """Texts to order by a query, as Jina's clients ask."""

    return_documents: bool = Field(default=True, description="Whether results repeat the texts.")
    truncation: bool = Field(default=True, description="Long texts are cut by the model anyway.")


class CohereRequest(_Request):
    """Texts to order by a query, as Cohere's clients ask."""

    max_tokens_per_doc: int | None = Field(
        default=None, ge=1, le=MAX_DOCUMENT_TOKENS, description="Longer texts are cut; null: not."
    )
    priority: int = Field(default=0, ge=0, le=999, description="Accepted; all are served alike.")


class TEIRequest(Strict):
    """Texts to order by a query, as clients of Text Embeddings Inference ask."""

    query: str = Field(min_length=1)
    texts: list[InterleavedText] = Field(min_length=1)
    truncate: bool = Field(default=False, description="Long texts are cut by the model anyway.")
    return_text: bool = Field(default=False, description="Whether results repeat the texts.")


class Result(BaseModel):
    """A document's place."""

    index: int = Field(description="Which of the request's documents, from 0.")
    relevance_score: float = Field(description="In [0, 1]; higher is better.")


class JinaDocument(BaseModel):
    """A document's text."""

    text: str


class JinaResult(Result):
    """A document's place, with its text if asked for."""

    document: JinaDocument | None = Field(default=None, exclude_if=lambda each: each is None)


class JinaUsage(BaseModel):
    """What was read."""

    total_tokens: int = Field(description="Tokens (cl100k) of the query and the documents.")


class JinaReply(BaseModel):
    """The documents, best first."""

    model: str
    usage: JinaUsage
    results: list[JinaResult]


class CohereReply(BaseModel):
    """The documents, best first."""

    id: str
    results: list[Result]
    meta: dict[str, Any] = {"api_version": {"version": "2"}}


class TEIResult(BaseModel):
    """A text's place."""

    index: int
    score: float = Field(description="In [0, 1]; higher is better.")
    text: str | None = Field(default=None, exclude_if=lambda each: each is None)


@router.post("/v1/rerank", summary="Order texts by a query (Jina)")
async def rerank(request: JinaRequest, stack: StackOf, limits: LimitsOf) -> JinaReply:
    """Return the texts by how well they answer a query. Open WebUI's external re-ranker asks so."""
    texts = request.documents
    results = await ordered(stack, limits, request.model, request.query, texts, request.top_n)
    read = await asyncio.to_thread(_tokens, [request.query, *texts])
    shown = request.return_documents
    return JinaReply(
        model=request.model,
        usage=JinaUsage(total_tokens=read),
        results=[
            JinaResult(**each.model_dump(), document=JinaDocument(text=texts[each.index]))
            if shown
            else JinaResult(**each.model_dump())
            for each in results
        ],
    )


@router.post(
    "/v2/rerank", summary="Order texts by a query (Cohere)", responses=refusals(CohereError)
)
async def rerank_v2(request: CohereRequest, stack: StackOf, limits: LimitsOf) -> CohereReply:
    """Return the texts by how well they answer a query."""
    texts = request.documents
    most = request.max_tokens_per_doc
    if most is not None:
        texts = await asyncio.to_thread(lambda: [tokenizer().cut(each, most) for each in texts])
    results = await ordered(stack, limits, request.model, request.query, texts, request.top_n)
    return CohereReply(id=str(uuid.uuid4()), results=results)


@router.post("/rerank", summary="Order texts by a query (TEI)")
async def rerank_tei(request: TEIRequest, stack: StackOf, limits: LimitsOf) -> list[TEIResult]:
    """Return the texts by how well they answer a query, by the first configured model, or BM25."""
    model = next((name for _, name in stack.rerank_models()), "bm25")
    check_count(request.texts, limits.max_k, field="texts", setting="max_k")
    results = await ordered(stack, limits, model, request.query, request.texts, None)
    return [
        TEIResult(
            index=each.index,
            score=each.relevance_score,
            text=request.texts[each.index] if request.return_text else None,
        )
        for each in results
    ]


async def ordered(
    stack: Stack,
    limits: Limits,
    model: str,
    query: str,
    documents: Sequence[str],
    top_n: int | None,
) -> list[Result]:
    """Return the documents best first, the first `top_n` of them.

    Raises:
        InvalidRequest: The model is unknown, or there are too many documents.
        ProviderError: The model's service failed.
    """
    check_count(documents, limits.max_k, field="documents", setting="max_k")
    reranker, embedder = await _reranker(stack, model)
    embedding, rows = await _embedded(embedder, query, documents)
    hits = [
        Hit(
            # No engine sees it; a text without a character must not be refused here.
            Chunk(content=text or " ", chunk_id=f"{number:06d}", embedding=row),
            0.0,
            Explanation(legs={}),
        )
        for number, (text, row) in enumerate(zip(documents, rows, strict=True))
    ]
    found = await reranker.rerank(query, hits, top_n or len(hits), embedding=embedding)
    return [Result(index=int(hit.chunk.chunk_id), relevance_score=hit.score) for hit in found]


async def _reranker(stack: Stack, model: str) -> tuple[Reranker, Embedder | None]:
    """Return a model's re-ranker, and the embedder where it reads embeddings."""
    kind, _, language = model.partition(":")
    if kind == "mmr" and not language:
        embedder = await stack.embedder(stack.default_model())
        return reranker_for(MMRRerank(), _texts_in("english")), embedder
    if kind == "bm25":
        return reranker_for(BM25Rerank(), _texts_in(_language(language))), None
    try:
        return await stack.reranker(model), None
    except InvalidRequest as error:
        hint = f"{error.hint} bm25, bm25:LANGUAGE and mmr need no configuration."
        raise InvalidRequest(error.message, hint=hint, field="model") from None


def _language(name: str) -> str:
    try:
        return language_name(name or "english")
    except ValueError:
        known = ", ".join(sorted(set(LANGUAGES.values())))
        raise InvalidRequest(
            f"bm25 has no language {name!r}.", hint=f"Known: {known}.", field="model"
        ) from None


def _texts_in(language: str) -> VectorDB:
    """Return what a re-ranker has to know of texts that are in no vector DB."""
    return VectorDB(
        identifier="request",
        provider_id="request",
        provider_resource_id="request",
        embedding_model="request",
        embedding_dimension=1,
        language=language,
        field_weights={"content": 1.0},
    )


async def _embedded(
    embedder: Embedder | None, query: str, documents: Sequence[str]
) -> tuple[NDArray[np.float32] | None, list[list[float] | None]]:
    if embedder is None:
        return None, [None] * len(documents)
    rows = await embedder.embed_documents([text or " " for text in documents])
    return await embedder.embed_query(query), rows.tolist()


def _tokens(texts: Sequence[str]) -> int:
    return sum(map(tokenizer().count, texts))
