"""Chunks: the unit that is stored, found and put into a context.

Wire names of Llama Stack (`content`, `metadata`, `chunk_metadata`, `chunk_id`) are also the names
here, since the objects are the same ones.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

MAX_ID_LENGTH = 255
"""Longest id of a vector DB, document or chunk, in characters."""


def strip_nul(value: Any) -> Any:
    """Return a value with NUL characters removed from every string in it, dict keys included.

    NUL ends a string inside several engines: text behind it would be lost or match wrongly.
    """
    if isinstance(value, str):
        return value.replace("\0", "") if "\0" in value else value
    if isinstance(value, dict):
        return {strip_nul(key): strip_nul(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strip_nul(item) for item in value]
    return value


class Strict(BaseModel):
    """Base of all wire models: an unknown key is refused and named, never ignored."""

    model_config = ConfigDict(extra="forbid")


class TextItem(Strict):
    """One text of an interleaved content."""

    type: Literal["text"] = "text"
    text: str


def content_text(content: Any) -> Any:
    """Return the text of an interleaved content: a string, a text item, or a list of these.

    Items are joined by a newline. Anything else is returned as it is, for the validator that
    follows to refuse; images are refused here, because their text would be silently empty.

    Raises:
        ValueError: An item is an image.
    """
    if isinstance(content, TextItem):
        return content.text
    if isinstance(content, dict):
        if content.get("type") == "image":
            raise ValueError("images cannot be searched; send text")
        return content.get("text", content) if content.get("type") == "text" else content
    if isinstance(content, list):
        parts = [content_text(item) for item in content]
        return "\n".join(parts) if all(isinstance(part, str) for part in parts) else content
    return content


InterleavedText = Annotated[
    str,
    BeforeValidator(content_text, json_schema_input_type=str | TextItem | list[str | TextItem]),
    AfterValidator(strip_nul),
]
"""A text that may arrive as a string, a text item or a list of either; NUL is stripped."""


def _finite(value: dict[str, Any]) -> dict[str, Any]:
    """Refuse NaN and infinity anywhere in a JSON object: no engine stores them alike."""
    _check_finite(value)
    return value


def _check_finite(value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("numbers must be finite")
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list | float):
            _check_finite(item)


Metadata = Annotated[dict[str, Any], AfterValidator(strip_nul), AfterValidator(_finite)]
"""A JSON object. Strings, numbers, booleans and lists of these can be filtered on."""

Identifier = Annotated[
    str, AfterValidator(strip_nul), Field(min_length=1, max_length=MAX_ID_LENGTH)
]
"""1 to 255 characters; anything but NUL, so slashes, quotes, dots and emoji are ordinary."""


class ChunkMetadata(Strict):
    """Where a chunk came from: Llama Stack's optional record, kept and returned as given."""

    chunk_id: str | None = None
    document_id: str | None = None
    source: str | None = None
    created_timestamp: int | None = None
    updated_timestamp: int | None = None
    chunk_window: str | None = Field(None, description='Token span in its document, "0-512".')
    chunk_tokenizer: str | None = None
    chunk_embedding_model: str | None = None
    chunk_embedding_dimension: int | None = None
    content_token_count: int | None = None
    metadata_token_count: int | None = None


class Chunk(Strict):
    """A piece of text with its metadata; equal chunk_id means the same chunk.

    An absent `chunk_id` is derived from the document id and the text, so inserting the same chunk
    twice stores it once, and equal text in two documents stays two chunks.
    """

    content: InterleavedText
    metadata: Metadata = Field(default_factory=dict)
    embedding: list[float] | None = None
    chunk_metadata: ChunkMetadata | None = None
    chunk_id: Identifier = Field("", validate_default=False)

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

    @property
    def document_id(self) -> str | None:
        """The document that this chunk belongs to (`metadata.document_id`), or None."""
        value = self.metadata.get("document_id")
        return None if value is None else str(value)


def derive_chunk_id(document_id: str, content: str, position: int = 0) -> str:
    """Return the id of a chunk without one: 32 hex digits of SHA-256.

    Args:
        document_id: The chunk's document, "" for none.
        content: The chunk's text.
        position: Its number in the document, from 0, where the caller splits the document itself;
            two equal passages of one document then stay two chunks.
    """
    key = f"{len(document_id)}:{document_id}:{position}:{content}"
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def last_of_each(chunks: Iterable[Chunk]) -> dict[str, int]:
    """Map each chunk_id to the position of its last appearance: what an upsert in order leaves."""
    return {chunk.chunk_id: position for position, chunk in enumerate(chunks)}
