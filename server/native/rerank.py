"""Re-ranking as a service, with the configured models, BM25 and MMR, in four services' formats.

BM25 takes its statistics from the documents of the request alone, like the re-ranker `bm25` from
the candidates of a query.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.embedder import Embedder
from corral.api.errors import InvalidRequest
from corral.api.fusion import Explanation
from corral.api.hits import Hit
from corral.api.reranker import BM25Rerank, MMRRerank, Reranker
from corral.api.vector_dbs import LANGUAGES, VectorDB, language_name
from corral.providers.base.config import Limits
from corral.providers.rerank import reranker_for
from corral.providers.stack.stack import Stack
from corral.providers.text.tokens import tokenizer
from corral.server.access.roles import READER
from corral.server.errors import ERRORS
from corral.server.limits import check_count
from corral.server.native.rerank_forms import (
    CohereError,
    CohereReply,
    CohereRequest,
    JinaReply,
    JinaRequest,
    Meta,
    TEIRequest,
    TEIResult,
    Usage,
    placed,
)
from corral.server.routers import Application, refusals
from corral.server.routing import ContractRoute, LimitsOf, StackOf

router = APIRouter(
    tags=["Models"], route_class=ContractRoute, responses=ERRORS, dependencies=[READER]
)
COHERE = Application(
    router,
    paths=("/v2/rerank",),
    refusal=lambda status, code, message: {"message": message},
)


@router.post("/v1/rerank", summary="Order texts by a query (Jina, vLLM)")
async def rerank(request: JinaRequest, stack: StackOf, limits: LimitsOf) -> JinaReply:
    """Return the texts, best match first. Open WebUI's external re-ranker uses this."""
    reply, read = await _answered(request, "1", stack, limits)
    return JinaReply(
        **dict(reply),
        model=request.model or _usual(stack),
        usage=Usage(prompt_tokens=read, total_tokens=read),
    )


@router.post(
    "/v2/rerank", summary="Order texts by a query (Cohere)", responses=refusals(CohereError)
)
async def rerank_v2(request: CohereRequest, stack: StackOf, limits: LimitsOf) -> CohereReply:
    """Return the texts, best match for the query first."""
    return (await _answered(request, "2", stack, limits))[0]


@router.post("/rerank", summary="Order texts by a query (TEI)")
async def rerank_tei(request: TEIRequest, stack: StackOf, limits: LimitsOf) -> list[TEIResult]:
    """Return the texts, best match for the query first, by the first configured model or BM25."""
    check_count(request.texts, limits.max_k, field="texts", setting="max_k")
    ranking = await ordered(stack, _usual(stack), request.query, request.texts)
    return [
        TEIResult(
            index=index, score=score, text=request.texts[index] if request.return_text else None
        )
        for index, score in ranking
    ]


async def _answered(
    request: JinaRequest | CohereRequest, version: str, stack: Stack, limits: Limits
) -> tuple[CohereReply, int]:
    """Return the reply in Cohere's format, and the number of tokens read."""
    check_count(request.documents, limits.max_k, field="documents", setting="max_k")
    texts = request.texts()
    shown, most = texts, request.max_tokens_per_doc
    if most is not None:
        texts = await asyncio.to_thread(lambda: [tokenizer().cut(each, most) for each in texts])
    model = request.model or _usual(stack)
    ranking = await ordered(stack, model, request.query, texts, request.top_n)
    read = await asyncio.to_thread(_tokens, [request.query, *texts])
    reply = CohereReply(
        id=str(uuid.uuid4()),
        results=placed(request, shown, ranking),
        meta=Meta(api_version={"version": version}, tokens={"input_tokens": read}),
    )
    return reply, read


def _usual(stack: Stack) -> str:
    """Return the model of a request that names none: the first configured one, or BM25."""
    return next((name for _, name in stack.rerank_models()), "bm25")


async def ordered(
    stack: Stack,
    model: str,
    query: str,
    documents: Sequence[str],
    top_n: int = 0,
) -> list[tuple[int, float]]:
    """Return index and score of the documents, best first: the first `top_n`, or all for 0.

    Raises:
        InvalidRequest: The model is unknown.
        ProviderError: The model's service failed.
    """
    reranker, embedder = await _reranker(stack, model)
    embedding, rows = await _embedded(embedder, query, documents)
    hits = [
        Hit(
            # No engine sees it, so a text without a visible character is allowed here.
            Chunk(content=text or " ", chunk_id=f"{number:06d}", embedding=row),
            0.0,
            Explanation(legs={}),
        )
        for number, (text, row) in enumerate(zip(documents, rows, strict=True))
    ]
    ranked = await reranker.rerank(query, hits, top_n or len(hits), embedding=embedding)
    return [(int(hit.chunk.chunk_id), hit.score) for hit in ranked]


async def _reranker(stack: Stack, model: str) -> tuple[Reranker, Embedder | None]:
    """Return a model's re-ranker, and the embedder if it reads embeddings."""
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
    """Return a placeholder vector DB for texts that are in none, because a re-ranker needs one."""
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
