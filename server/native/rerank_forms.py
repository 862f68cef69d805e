"""Requests and replies of re-ranking clients, in the formats of Cohere, Jina, vLLM and TEI.

Every field that these services document for texts is accepted, except those that vLLM deprecates.
Unsupported values, such as scores outside [0, 1], are refused, but not the fields themselves, so a
client may send the defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from corral.api.errors import InvalidRequest
from corral.api.wire import (
    InterleavedText,
    Metadata,
    NullsAreDefaults,
    TextItem,
    content_text,
    strip_nul,
)

MAX_DOCUMENT_TOKENS = 1_000_000


def _only(value: object, reason: str) -> AfterValidator:
    """Return a check that a field has its only supported value."""

    def checked(given: Any) -> Any:
        if given != value:
            raise ValueError(reason)
        return given

    return AfterValidator(checked)


def _text_or_object(document: Any) -> Any:
    """Return the text of an interleaved content; an object as it is."""
    return document if isinstance(document, dict) else content_text(document)


_CUT = "must be -1, the model's limit; max_tokens_per_doc cuts documents"
_END = "must be right: long texts lose their end"
_RANGE = "must be true: scores are always in [0, 1]"

Document = Annotated[
    str | Metadata,
    BeforeValidator(
        _text_or_object, json_schema_input_type=str | list[str | TextItem] | dict[str, Any]
    ),
    AfterValidator(strip_nul),
]
"""A text, or an object with texts in it."""


class CohereError(BaseModel):
    """An error in Cohere's format."""

    message: str


class RerankRequest(NullsAreDefaults):
    """The fields that Cohere's, Jina's and vLLM's requests share."""

    model: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description="A configured re-ranking model; bm25, also bm25:LANGUAGE; or mmr. null: the "
        "first configured model, else bm25.",
    )
    query: str = Field(min_length=1)
    documents: list[Document] = Field(
        min_length=1,
        description="Texts, or objects whose `rank_fields` are read; at most "
        "`server.limits.max_k`.",
    )
    top_n: int = Field(default=0, ge=0, description="Maximum number of results; null or 0: all.")
    rank_fields: list[str] = Field(
        default=["text"],
        min_length=1,
        max_length=100,
        description="Fields to read from documents that are objects, in this order.",
    )
    max_tokens_per_doc: int | None = Field(
        default=None,
        ge=1,
        le=MAX_DOCUMENT_TOKENS,
        description="Truncate longer texts; null: do not.",
    )
    max_chunks_per_doc: int | None = Field(
        default=None, ge=1, description="Accepted and ignored: a document is always one chunk."
    )
    priority: int = Field(
        default=0, description="Accepted and ignored: all requests have the same priority."
    )

    def texts(self) -> list[str]:
        """Return the text of each document.

        Raises:
            InvalidRequest: A document lacks one of `rank_fields`.
        """
        return [
            document if isinstance(document, str) else self._text(number, document)
            for number, document in enumerate(self.documents)
        ]

    def _text(self, number: int, document: dict[str, Any]) -> str:
        parts = [document.get(name) for name in self.rank_fields]
        for name, part in zip(self.rank_fields, parts, strict=True):
            if not isinstance(part, str):
                raise InvalidRequest(
                    f"documents[{number}] has no text {name[:100]!r}.",
                    hint="Set rank_fields to the fields to read; images are not supported.",
                    field=f"documents[{number}]",
                )
        return "\n".join(str(part) for part in parts)


class JinaRequest(RerankRequest):
    """A re-ranking request in the format of Jina, vLLM and Cohere's version 1."""

    return_documents: bool = Field(default=True, description="Return the texts too.")
    truncation: bool = Field(
        default=True, description="Accepted and ignored: the model always truncates long texts."
    )
    truncate_prompt_tokens: Annotated[int, _only(-1, _CUT)] = Field(
        default=-1, description="Must be -1: the model truncates long texts."
    )
    truncation_side: Annotated[str, _only("right", _END)] = Field(
        default="right", description="Must be right: long texts lose their end."
    )
    use_activation: Annotated[bool, _only(True, _RANGE)] = Field(
        default=True, description="Must be true: scores are in [0, 1]."
    )
    user: str | None = Field(
        default=None, description="Accepted and ignored: the API key identifies the user."
    )


class CohereRequest(RerankRequest):
    """A re-ranking request in Cohere's format."""

    return_documents: bool = Field(default=False, description="Return the texts too.")


class TEIRequest(NullsAreDefaults):
    """A re-ranking request in the format of Text Embeddings Inference."""

    query: str = Field(min_length=1)
    texts: list[InterleavedText] = Field(min_length=1, description="At most `server.limits.max_k`.")
    truncate: bool = Field(
        default=False, description="Accepted and ignored: the model always truncates long texts."
    )
    truncation_direction: Annotated[str, AfterValidator(str.lower), _only("right", _END)] = Field(
        default="right", description="Must be right: long texts lose their end."
    )
    raw_scores: Annotated[bool, _only(False, "must be false: scores are always in [0, 1]")] = Field(
        default=False, description="Must be false: scores are in [0, 1]."
    )
    return_text: bool = Field(default=False, description="Return the texts too.")


class Result(BaseModel):
    """Score of a document, with the document if requested."""

    index: int = Field(description="Index of the document in the request, from 0.")
    relevance_score: float = Field(description="Score in [0, 1]; higher is better.")
    document: dict[str, Any] | None = Field(
        default=None,
        exclude_if=lambda each: each is None,
        description="The request's object, or `text`.",
    )


class Usage(BaseModel):
    """Tokens read."""

    prompt_tokens: int = Field(description="Tokens (cl100k) of the query and the documents.")
    total_tokens: int = Field(description="The same.")


class Meta(BaseModel):
    """The cost of a request, for Cohere's clients."""

    api_version: dict[str, str] = Field(description="`version`: that of Cohere's API.")
    billed_units: dict[str, int] = Field(
        default={"search_units": 0}, description="Units that Cohere would bill: always 0."
    )
    tokens: dict[str, int] = Field(
        description="`input_tokens` (cl100k) of the query and the documents."
    )


class CohereReply(BaseModel):
    """The documents, best first."""

    id: str = Field(description="A new id for each reply.")
    results: list[Result]
    meta: Meta


class JinaReply(CohereReply):
    """The documents, best first, for clients of Jina, vLLM and Cohere's version 1."""

    model: str = Field(description="The re-ranking model.")
    usage: Usage


class TEIResult(BaseModel):
    """Score of a text."""

    index: int
    score: float = Field(description="Score in [0, 1]; higher is better.")
    text: str | None = Field(default=None, exclude_if=lambda each: each is None)


def placed(
    request: JinaRequest | CohereRequest, texts: Sequence[str], scores: Sequence[tuple[int, float]]
) -> list[Result]:
    """Return the results of a request, with its documents if requested."""
    return [
        Result(
            index=index,
            relevance_score=score,
            document=_shown(request.documents[index], texts[index])
            if request.return_documents
            else None,
        )
        for index, score in scores
    ]


def _shown(document: str | dict[str, Any], text: str) -> dict[str, Any]:
    return {"text": text} if isinstance(document, str) else {"text": text, **document}
