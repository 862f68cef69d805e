"""Embeddings, by the models that vector DBs can be registered with."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, Field, StringConstraints

from corral.api.embedder import Embedder
from corral.api.errors import InvalidRequest, NotFound
from corral.api.wire import NullsAreDefaults
from corral.providers.text.tokens import Tokenizer, decoded, own_tokenizer, tokenizer
from corral.server.access.roles import READER
from corral.server.errors import ERRORS
from corral.server.llama_stack.wire import Listed
from corral.server.openai.routes import OpenAIRoute
from corral.server.routing import StackOf

router = APIRouter(prefix="/v1", tags=["Embeddings"], route_class=OpenAIRoute, responses=ERRORS)

MAX_INPUTS = 2048
MAX_CHARACTERS = 1_000_000
"""Maximum length of a text; a model ignores what exceeds its window."""
MAX_TOKENS = 8192
"""Maximum tokens of a text sent as tokens; OpenAI's limit."""
TEXTS_LIMIT = 512

Token = Annotated[int, Field(ge=0, le=2**31 - 1)]
Tokens = Annotated[Listed[Token], Field(min_length=1, max_length=MAX_TOKENS)]
InputText = Annotated[str, StringConstraints(min_length=1, max_length=MAX_CHARACTERS)]
Texts = Annotated[Listed[InputText], Field(min_length=1)]
Lists = Annotated[Listed[Tokens], Field(min_length=1)]


def _bounded(given: Any) -> Any:
    is_one = not isinstance(given, list) or not given or isinstance(given[0], int)
    if not is_one and len(given) > MAX_INPUTS:
        raise ValueError(f"at most {MAX_INPUTS} texts at once (got {len(given)})")
    return given


Input: TypeAlias = Annotated[InputText | Texts | Tokens | Lists, BeforeValidator(_bounded)]


class EmbeddingRequest(NullsAreDefaults):
    """Texts to embed."""

    input: Input = Field(
        description="One text or several, or the cl100k tokens of one text or several; none empty."
    )
    model: str = Field(min_length=1, max_length=255)
    dimensions: int | None = Field(
        default=None,
        ge=1,
        le=16_000,
        description="Must be the model's own dimension; null: the same.",
    )
    encoding_format: Literal["float", "base64"] = Field(
        default="float", description="base64 encodes little-endian 32-bit floats."
    )
    input_type: Literal["document", "query"] = Field(
        default="document",
        description="Type of the texts, for models that embed questions differently.",
    )
    user: str | None = Field(default=None, max_length=255, description="Accepted and ignored.")


class EmbeddingObject(BaseModel):
    """The embedding of one text."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """Tokens of the texts, by the model's tokenizer if known, else cl100k."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(BaseModel):
    """Embeddings in the order of the texts."""

    object: Literal["list"] = "list"
    data: list[EmbeddingObject]
    model: str
    usage: Usage


@router.post("/embeddings", summary="Embed texts", dependencies=[READER])
async def create(request: EmbeddingRequest, stack: StackOf) -> EmbeddingList:
    """Return an embedding of each text from a configured model."""
    try:
        embedder = await stack.embedder(request.model)
    except NotFound as error:
        error.field = "model"
        raise
    _check_dimensions(request, embedder)
    texts = await asyncio.to_thread(_texts, request.input)
    made = await _embedded(embedder, texts, request.input_type)
    return await asyncio.to_thread(_reply, request, embedder, texts, made)


def _check_dimensions(request: EmbeddingRequest, embedder: Embedder) -> None:
    has = embedder.info.dimension
    if request.dimensions not in (None, has):
        raise InvalidRequest(
            f"dimensions must be {has} for {request.model} (got {request.dimensions}).",
            hint="Leave dimensions out.",
            field="dimensions",
        )


def _texts(given: Input) -> list[str]:
    """Return the texts of an input; tokens are decoded as cl100k, which clients use."""
    if isinstance(given, str):
        return [given]
    if isinstance(given[0], int):
        return [_text_of(given, "input")]
    return [
        each if isinstance(each, str) else _text_of(each, f"input[{number}]")
        for number, each in enumerate(given)
    ]


def _text_of(tokens: Sequence[object], field: str) -> str:
    text = decoded([token for token in tokens if isinstance(token, int)])
    if text is None:
        raise InvalidRequest(
            f"{field} contains a number that is not a cl100k token.",
            hint="Send the text itself.",
            field=field,
        )
    return text


async def _embedded(
    embedder: Embedder, texts: Sequence[str], kind: Literal["document", "query"]
) -> NDArray[np.float32]:
    if kind == "query":
        return np.stack([await embedder.embed_query(text) for text in texts])
    starts = range(0, len(texts), TEXTS_LIMIT)
    return np.concatenate(
        [await embedder.embed_documents(texts[at : at + TEXTS_LIMIT]) for at in starts]
    )


def _reply(
    request: EmbeddingRequest, embedder: Embedder, texts: Sequence[str], made: NDArray[np.float32]
) -> EmbeddingList:
    as_text = request.encoding_format == "base64"
    data = [
        EmbeddingObject(index=number, embedding=_base64(row) if as_text else row.tolist())
        for number, row in enumerate(made)
    ]
    count = sum(map(_counter(embedder).count, texts))
    usage = Usage(prompt_tokens=count, total_tokens=count)
    return EmbeddingList(data=data, model=request.model, usage=usage)


def _base64(row: NDArray[np.float32]) -> str:
    return base64.b64encode(row.astype("<f4").tobytes()).decode()


def _counter(embedder: Embedder) -> Tokenizer:
    return own_tokenizer(embedder.tokenizer) if embedder.tokenizer else tokenizer()
