"""The RAG tool's types: documents to insert, questions, and contexts within a token budget."""

from __future__ import annotations

import re
from html import escape
from string import Formatter
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from corral.api.assembly import AssemblyOptions
from corral.api.chunks import Acl
from corral.api.options import MaxChunks, RetrievalOptions
from corral.api.wire import (
    Identifier,
    InterleavedText,
    Metadata,
    NullsAreDefaults,
    Strict,
    TextItem,
)

DEFAULT_CHUNK_TEMPLATE = "Result {index}\nContent: {chunk.content}\nMetadata: {metadata}\n"

TEMPLATE_FIELDS = ("index", "chunk.content", "metadata")
"""The only names that a chunk template can reach."""

MAX_TEMPLATE_FIELDS = 16
"""Maximum fields of a template: each is replaced by a whole text."""


def template_parts(template: str) -> list[str]:
    """Return a chunk template as text, field, text, field, ..., text.

    `{{` and `}}` are literal braces. A field must be one of `TEMPLATE_FIELDS` and, unlike with
    `str.format`, is never evaluated, so it cannot reach attributes.

    Raises:
        ValueError: A brace is unmatched, or a field is unknown or has a format.
    """
    parts = [""]
    try:
        parsed = list(Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"chunk_template: {error}; write {{{{ and }}}} for braces") from None
    for text, name, spec, conversion in parsed:
        parts[-1] += text
        if name is None:
            continue
        if name not in TEMPLATE_FIELDS or spec or conversion:
            shown = f"{name}!{conversion}" if conversion else name
            shown = f"{shown}:{spec}" if spec else shown
            raise ValueError(
                f"chunk_template has no field {{{shown[:100]}}}; the fields are "
                f"{', '.join(f'{{{each}}}' for each in TEMPLATE_FIELDS)}, and {{{{ and }}}} are "
                "braces"
            )
        parts += [name, ""]
    return parts


def check_template(template: str) -> str:
    """Return the template if it contains `{index}` and `{chunk.content}`, and no unknown field.

    Raises:
        ValueError: A required field is missing, `template_parts` rejects the template, or it has
            more than `MAX_TEMPLATE_FIELDS` fields.
    """
    fields = template_parts(template)[1::2]
    for name in ("index", "chunk.content"):
        if name not in fields:
            raise ValueError(f"chunk_template must contain {{{name}}}")
    _bounded("chunk_template", len(fields))
    return template


def _bounded(name: str, fields: int) -> None:
    if fields > MAX_TEMPLATE_FIELDS:
        raise ValueError(f"{name} must have at most {MAX_TEMPLATE_FIELDS} fields (got {fields})")


_ADDRESS = re.compile(r"\s*https?://[^\s<>\"{}|\\^`]+\s*", re.IGNORECASE)

MAX_URL_LENGTH = 4096
"""Maximum length of a document's address, in characters; a `data:` URI may fill the body."""


class URL(Strict):
    """Address of a document, fetched only if the operator allows its host.

    A `data:` URI contains the document itself, such as a binary file; nothing is fetched.
    """

    uri: str = Field(min_length=1)

    @model_validator(mode="after")
    def _bounded(self) -> URL:
        if self.uri[:5].lower() != "data:" and len(self.uri) > MAX_URL_LENGTH:
            raise ValueError(f"an address has at most {MAX_URL_LENGTH} characters")
        return self


class RAGDocument(Strict):
    """A document to split, embed and store.

    If `content` is a string with one http(s) address, Corral fetches that address, as with `{"uri":
    ...}`, if the operator allows its host, and else refuses it. Every other string is text, and so
    is every text item: `{"type": "text", "text": "https://..."}` stores the address itself.
    """

    document_id: Identifier
    content: InterleavedText | URL
    mime_type: str | None = Field(default=None, max_length=255)
    metadata: Metadata = Field(default_factory=dict)
    origin: str | None = Field(
        default=None,
        max_length=255,
        description="Where the document comes from, such as a hash of a file's path; see "
        "`same_origin_only`. Stored with the chunks and never returned.",
    )
    acl: Acl | None = Field(
        default=None,
        exclude_if=lambda acl: acl is None,
        description="Who may read it: a reader needs one of these tokens. Absent: the vector DB's "
        "`default_acl`.",
    )

    @model_validator(mode="before")
    @classmethod
    def _address(cls, data: Any) -> Any:
        content = data.get("content") if isinstance(data, dict) else None
        if isinstance(content, str) and _ADDRESS.fullmatch(content):
            return {**data, "content": {"uri": content.strip()}}
        return data

    @model_validator(mode="after")
    def _not_empty(self) -> RAGDocument:
        if isinstance(self.content, str) and not self.content.strip():
            raise ValueError("content is empty")
        return self


class DefaultQueryGenerator(Strict):
    """Use the question unchanged: the texts of its message, joined by `separator`."""

    type: Literal["default"] = "default"
    separator: str = Field(default=" ", max_length=100)


QUERY_TEMPLATE_FIELD = re.compile(r"\{\{\s*(?:query|messages)\s*\}\}|\{(?:query|messages)\}")
"""The only field of a query generator's template, in our spelling and in Jinja's."""

_OTHER_JINJA = re.compile(r"\{[{%#]")


def check_query_template(template: str) -> str:
    """Return the template if it contains the question and no other field.

    The question is inserted by plain replacement; the template is never executed. Other Jinja
    expressions, statements and comments are rejected, because they would reach the model unchanged.

    Raises:
        ValueError: The template lacks the question, has it more than `MAX_TEMPLATE_FIELDS` times,
            or has another expression.
    """
    if not QUERY_TEMPLATE_FIELD.search(template):
        raise ValueError("template must contain {query} or {messages} for the question")
    if _OTHER_JINJA.search(QUERY_TEMPLATE_FIELD.sub("", template)):
        raise ValueError("template can contain {query} or {messages}, but no other expressions")
    _bounded("template", len(QUERY_TEMPLATE_FIELD.findall(template)))
    return template


class LLMQueryGenerator(Strict):
    """A question rewritten by a configured language model."""

    type: Literal["llm"]
    model: str = Field(min_length=1, max_length=255, description="A configured language model.")
    template: Annotated[str, AfterValidator(check_query_template)] = Field(
        max_length=10_000,
        description="The prompt, with the question as {query} or {messages}, also in double "
        "braces.",
    )


QueryGenerator: TypeAlias = Annotated[
    DefaultQueryGenerator | LLMQueryGenerator, Field(discriminator="type")
]


THEIR_FIELDS = (
    "query_generator_config",
    "max_tokens_in_context",
    "max_chunks",
    "chunk_template",
    "mode",
    "ranker",
)
"""Llama Stack's fields of a query config."""


class RAGQueryConfig(RetrievalOptions, AssemblyOptions, NullsAreDefaults):
    """How a RAG query retrieves and assembles; `model_dump()` returns exactly its wire format.

    `THEIR_FIELDS` are Llama Stack's and are always dumped. The other fields are ours, and are
    dumped only if they differ from their default, so that other servers accept the config.
    """

    query_generator_config: QueryGenerator = DefaultQueryGenerator()
    max_tokens_in_context: int = Field(
        default=4096,
        ge=1,
        le=1_000_000,
        description="Maximum number of tokens in the context.",
    )
    max_chunks: MaxChunks = Field(
        default=5,
        description="Maximum number of chunks in the context; `auto`: the square root of the "
        "number of chunks.",
    )
    chunk_template: Annotated[str, AfterValidator(check_template)] = Field(
        default=DEFAULT_CHUNK_TEMPLATE, max_length=10_000
    )
    tokenizer: str = Field(
        default="cl100k",
        json_schema_extra={"enum": ["cl100k", "o200k", "bytes", "embedder"]},
        description="Tokenizer that counts the budget; `embedder`: the embedding model's own.",
    )

    @model_serializer(mode="wrap")
    def _dump(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        dumped: dict[str, Any] = handler(self)
        dumped["mode"] = self.mode.value if self.mode else None
        ordered = {name: dumped[name] for name in THEIR_FIELDS if name in dumped}
        for name, declared in RAGQueryConfig.model_fields.items():
            is_default = getattr(self, name) == declared.get_default(call_default_factory=True)
            if name in dumped and not is_default:
                ordered[name] = dumped[name]
        return ordered


class RAGQueryResult(Strict):
    """A context and its metadata.

    Attributes:
        content: The context's text items; concatenated, they have at most `max_tokens_in_context`
            tokens. None if no chunk was retrieved or none fits.
        metadata: `document_ids`, `chunks`, `scores`, `vector_db_ids`: parallel lists of exactly
            the chunks in the content; `included_chunks` and `dropped_chunks`, with the reason for
            each chunk; and `token_count`, `max_tokens`, `dropped`, `dropped_by_reason`.
    """

    content: list[TextItem] | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)

    @property
    def text(self) -> str:
        """The context as one string; empty if no chunk was retrieved or none fits."""
        return "".join(item.text for item in self.content or ())

    def _repr_html_(self) -> str:
        """Return the context and its token count as HTML for a notebook; the text is escaped."""
        tokens, most = (self.metadata.get(name, 0) for name in ("token_count", "max_tokens"))
        about = f"{tokens} of {most} tokens" if self.text else "Nothing found."
        style = "white-space: pre-wrap; text-align: left"
        context = f'<pre style="{style}">{escape(self.text)}</pre>' if self.text else ""
        return f"{context}<p>{escape(about)}</p>"
