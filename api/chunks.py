"""Chunks: the unit of storage, search and context assembly.

The field names are Llama Stack's wire names (`content`, `metadata`, `chunk_metadata`, `chunk_id`),
because the same models go over the wire.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from corral.api.principal import check_acl
from corral.api.wire import MAX_ID_LENGTH, Identifier, InterleavedText, Metadata, Storable, Strict

MAX_TIME = 253_402_300_799
"""The last second of the year 9999, in Unix seconds."""

MAX_GAP = 256
"""Maximum characters between a chunk and the one before that its `gap_before` records."""


MAX_HEADINGS = 16
"""Maximum headings in a chunk's path."""

MAX_CONTEXT = 300
"""Maximum characters of the sentence about a chunk."""

MAX_EMBEDDED_HEADINGS = 200
"""Maximum characters of headings that are embedded before a chunk's content."""


class ChunkMetadata(Strict):
    """Where a chunk comes from: Llama Stack's optional record, stored and returned as given.

    The fields from `position` on are ours: a chunk's place in its document, which context assembly
    needs to add adjacent chunks without repeating their overlap, and to cite. The RAG tool fills
    them in; a chunk inserted without them has no neighbors. `char_start` and `char_end` are
    offsets into the parsed text of the document: `content` is exactly that span, after the first
    `repeated_characters`.
    """

    chunk_id: Identifier | None = None
    document_id: Identifier | None = None
    source: Storable | None = None
    created_timestamp: int | None = None
    updated_timestamp: int | None = None
    chunk_window: Storable | None = Field(
        default=None, description='Token span in its document, such as "0-512".'
    )
    chunk_tokenizer: Storable | None = None
    chunk_embedding_model: Storable | None = None
    chunk_embedding_dimension: int | None = None
    content_token_count: int | None = None
    metadata_token_count: int | None = None
    position: int | None = Field(
        default=None, ge=0, description="Its number in its document, from 0."
    )
    char_start: int | None = Field(
        default=None, ge=0, description="First character in its document."
    )
    char_end: int | None = Field(
        default=None, ge=0, description="Last character in its document, exclusive."
    )
    repeated_characters: int | None = Field(
        default=None,
        ge=1,
        description="Characters at the beginning of `content` that repeat a table's header.",
    )
    page: int | None = Field(default=None, ge=1, description="The page on which it begins, from 1.")
    page_end: int | None = Field(
        default=None, ge=1, description="The page on which it ends, if different."
    )
    line_start: int | None = Field(
        default=None, ge=1, description="The line on which it begins, from 1 (texts and code)."
    )
    line_end: int | None = Field(default=None, ge=1, description="The line on which it ends.")
    row_start: int | None = Field(
        default=None, ge=1, description="The row of a sheet on which it begins, from 1."
    )
    row_end: int | None = Field(
        default=None, ge=1, description="The row of the same sheet on which it ends."
    )
    cell_start: int | None = Field(
        default=None, ge=1, description="The cell of a notebook in which it begins, from 1."
    )
    cell_end: int | None = Field(default=None, ge=1, description="The cell in which it ends.")
    heading_path: list[Storable] | None = Field(
        default=None,
        max_length=MAX_HEADINGS,
        description="The headings above it, outermost first; in code, the class and function. "
        "Embedded with the content, and searched as part of the title.",
    )
    context: Storable | None = Field(
        default=None,
        max_length=MAX_CONTEXT,
        description="A sentence of a language model about it; embedded and searched with the "
        "content, which stays as it is.",
    )
    filename: Storable | None = Field(default=None, max_length=MAX_ID_LENGTH)
    previous_chunk_id: Identifier | None = None
    next_chunk_id: Identifier | None = None
    gap_before: Storable | None = Field(
        default=None,
        max_length=MAX_GAP,
        description="White space, or `split_on`, between the previous chunk and this one; it is "
        "in neither.",
    )
    document_hash: str | None = Field(
        default=None, max_length=64, description="Hash of the input of its document."
    )
    document_origin: str | None = Field(
        default=None,
        max_length=255,
        description="The document's `origin`.",
    )
    expires_at: int | None = Field(
        default=None,
        ge=0,
        le=MAX_TIME,
        description="When the chunk is deleted, in Unix seconds; null: never.",
    )


STORED = {"stored": True}
"""Validation context for chunks that Corral stored: acls that an older version accepted pass."""


def _checked(acl: list[str], info: ValidationInfo) -> list[str]:
    return acl if info.context == STORED else check_acl(acl)


Acl = Annotated[list[str], AfterValidator(_checked)]
"""Tokens that allow reading: `user:NAME`, `group:NAME`, `tenant:NAME`, `tenant:*` (everyone)."""


class Chunk(Strict):
    """A piece of text with its metadata; equal chunk_id means the same chunk.

    If `chunk_id` is absent, it is derived from the document id and the text: inserting the same
    chunk twice stores it once, and the same text in two documents is two chunks.
    """

    content: InterleavedText
    metadata: Metadata = Field(default_factory=dict)
    embedding: list[float] | None = None
    chunk_metadata: ChunkMetadata | None = None
    chunk_id: Identifier = Field(default="", validate_default=False)
    acl: Acl | None = Field(
        default=None,
        exclude_if=lambda acl: acl is None,
        description="Who may read it: a reader needs one of these tokens. Absent: the vector DB's "
        "`default_acl`. []: only admins. Returned only to writers and admins.",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_chunk_id(cls, data: Any) -> Any:
        if isinstance(data, dict) and not data.get("chunk_id"):
            data = {key: value for key, value in data.items() if key != "chunk_id"}
        return data

    @model_validator(mode="after")
    def _derive(self) -> Chunk:
        if not self.content:
            raise ValueError("content is empty")
        recorded = self.chunk_metadata
        if recorded and recorded.document_id and "document_id" not in self.metadata:
            self.metadata["document_id"] = recorded.document_id
        if not self.chunk_id:
            given = recorded.chunk_id if recorded else None
            self.chunk_id = given or derive_chunk_id(self.document_id or "", self.content)
        return self

    @classmethod
    def stored(
        cls,
        chunk_id: str,
        content: str,
        metadata: dict[str, Any],
        chunk_metadata: ChunkMetadata | None,
        embedding: list[float] | None,
    ) -> Chunk:
        """Return a chunk read from an engine, without validating it again.

        Pydantic's `model_construct` takes five times as long, and a query builds every hit.
        """
        fields = {
            "content": content,
            "metadata": metadata,
            "embedding": embedding,
            "chunk_metadata": chunk_metadata,
            "chunk_id": chunk_id,
        }
        chunk = cls.__new__(cls)
        object.__setattr__(chunk, "__pydantic_fields_set__", set(fields))
        object.__setattr__(chunk, "__pydantic_extra__", None)
        object.__setattr__(chunk, "__pydantic_private__", None)
        object.__setattr__(chunk, "__dict__", {**fields, "acl": None})
        return chunk

    @property
    def document_id(self) -> str | None:
        """The document that this chunk belongs to (`metadata.document_id`), or None."""
        value = self.metadata.get("document_id")
        return None if value is None else str(value)


def embedded_text(chunk: Chunk) -> str:
    """Return the text of a chunk to embed: heading path, sentence about it, content.

    Headings that the content already contains are left out. So are the outermost ones beyond
    `MAX_EMBEDDED_HEADINGS` characters.
    """
    path = chunk.chunk_metadata.heading_path if chunk.chunk_metadata else None
    line = ""
    for heading in reversed([each for each in path or () if each not in chunk.content]):
        longer = f"{heading} > {line}" if line else heading
        if len(longer) > MAX_EMBEDDED_HEADINGS:
            break
        line = longer
    context = (chunk.chunk_metadata.context if chunk.chunk_metadata else None) or ""
    return "\n".join(part for part in (line, context, chunk.content) if part)


def derive_chunk_id(document_id: str, content: str, position: int = 0) -> str:
    """Return the id of a chunk without one: 32 hex digits of SHA-256.

    Args:
        document_id: The chunk's document, "" for none.
        position: The chunk's number in the document, from 0, if the caller splits the document;
            two equal passages of one document then stay two chunks.
    """
    key = f"{len(document_id)}:{document_id}:{position}:{content}"
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def last_of_each(chunks: Iterable[Chunk]) -> dict[str, int]:
    """Map each chunk_id to the position of its last appearance, the one that an upsert keeps."""
    return {chunk.chunk_id: position for position, chunk in enumerate(chunks)}
