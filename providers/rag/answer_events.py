"""The events of an answer, in the order in which they can come:

Searching, Searched, ..., (Text | Cited | Refusal)*, (FunctionCall, Arguments*)*, ..., Ended
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from corral.api.chunks import Chunk


@dataclass(frozen=True, slots=True)
class Source:
    """A passage that a model was given to cite or quote.

    Attributes:
        number: The number in its citation marker, from 1.
        vector_db_id: The vector DB that contains it.
        chunk: The best chunk of the passage.
        score: The score of that chunk, in [0, 1].
        text: The text of the passage in the context.
        place: The place of the passage in its document, as in a context's `citations`.
    """

    number: int
    vector_db_id: str
    chunk: Chunk
    score: float
    text: str
    place: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """A hit of a search.

    Attributes:
        number: The number of the source that contains the chunk; None if it is not in the context.
    """

    vector_db_id: str
    chunk: Chunk
    score: float
    number: int | None


@dataclass(frozen=True, slots=True)
class Searching:
    """A search begins."""

    queries: list[str]


@dataclass(frozen=True, slots=True)
class Searched:
    """The search ended.

    Attributes:
        results: Best first.
        sources: In the order of the context.
        context: The context; "" if nothing was found.
        metadata: The metadata of the `RAGQueryResult`.
    """

    queries: list[str]
    results: list[Result]
    sources: list[Source]
    context: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer, without citation markers."""

    text: str


@dataclass(frozen=True, slots=True)
class Cited:
    """A citation of a source at the end of the text so far.

    Attributes:
        quote: Start and end of the quoted part of `source.text`, in characters; None if a language
            model wrote the text.
    """

    source: Source
    quote: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A piece of the text of the model's refusal."""

    text: str


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """The model calls a function of the client; its arguments follow."""

    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """A piece of the arguments of a function call, as JSON text."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of all model calls, counted with cl100k if the model does not report them."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0

    def __add__(self, other: Usage) -> Usage:
        """Return the sum."""
        return Usage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
        )


@dataclass(frozen=True, slots=True)
class Ended:
    """The answer is complete.

    Attributes:
        reason: Why the model stopped: `stop`, `tool_calls`, `length` or `content_filter`.
    """

    reason: str
    usage: Usage


Event: TypeAlias = Searching | Searched | Text | Cited | Refusal | FunctionCall | Arguments | Ended
