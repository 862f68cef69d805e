"""The bases of all wire models, and the texts, ids and metadata that they hold."""

from __future__ import annotations

import re
import sys
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from corral.api.findings import path_of, sentence
from corral.api.wire_numbers import ExactNumbers

MAX_ID_LENGTH = 255
"""Maximum length of the id of a vector DB, document or chunk, in characters."""


MAX_METADATA_DEPTH = 32
"""Maximum nesting of lists and objects in metadata; more only serves to exhaust a parser."""

_SURROGATES = re.compile("[\ud800-\udfff]")


def strip_nul(value: Any) -> Any:
    """Return a value with NUL and lone surrogates removed from all its strings and dict keys.

    NUL ends a string inside several engines, which would lose the text behind it or match wrongly.
    A lone surrogate is not a character and becomes U+FFFD.

    Raises:
        ValueError: Two keys of a dict would become equal, which would lose one of their values.
    """
    if isinstance(value, str):
        text = value.replace("\0", "")
        return text if text.isascii() else _SURROGATES.sub("\ufffd", text)
    if isinstance(value, dict):
        stripped = {strip_nul(key): strip_nul(item) for key, item in value.items()}
        if len(stripped) < len(value):
            raise ValueError("two keys are the same without NUL; rename or leave out one of them")
        return stripped
    if isinstance(value, list | tuple):
        return [strip_nul(item) for item in value]
    return value


class Strict(ExactNumbers):
    """Base of all wire models: an unknown key is rejected by name, never ignored."""

    model_config = ConfigDict(extra="forbid")


class NullsAreDefaults(Strict):
    """Base of wire models with optional fields: null means the default."""

    @model_validator(mode="before")
    @classmethod
    def _nulls_are_defaults(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None}
        return data


class TextItem(Strict):
    """One text of interleaved content."""

    type: Literal["text"] = "text"
    text: str


def content_text(content: Any) -> Any:
    """Return the text of interleaved content: a string, a text item, or a list of these.

    Items are joined by a newline. Any other value is returned unchanged, so that the next validator
    rejects it; images are rejected here, because their text would be silently empty.

    Raises:
        ValueError: An item is an image, or is not text.
    """
    if isinstance(content, TextItem):
        return content.text
    if isinstance(content, dict):
        if content.get("type") == "image":
            raise ValueError("images cannot be searched; send text")
        return TextItem.model_validate(content).text if content.get("type") == "text" else content
    if isinstance(content, list):
        return "\n".join(_item_text(number, item) for number, item in enumerate(content))
    return content


def _item_text(number: int, item: Any) -> str:
    try:
        text = content_text(item)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = f"item {number}.{path_of(first['loc'])}"
        raise ValueError(sentence(path, first, first["input"]).removesuffix(".")) from None
    if not isinstance(text, str):
        raise ValueError(
            f"item {number} must be a string or a text item (got {type(item).__name__})"
        )
    return text


InterleavedText = Annotated[
    str,
    BeforeValidator(content_text, json_schema_input_type=str | TextItem | list[str | TextItem]),
    AfterValidator(strip_nul),
]
"""A text that may arrive as a string, a text item or a list of either; NUL is stripped."""


def _storable(value: Any, depth: int = 0) -> Any:
    """Reject values that are not JSON, and numbers that engines store differently, such as NaN."""
    if depth > MAX_METADATA_DEPTH:
        raise ValueError(f"nested more than {MAX_METADATA_DEPTH} deep")
    if isinstance(value, int | float) and not abs(value) <= sys.float_info.max:
        raise ValueError("numbers must be finite and fit a 64-bit float")
    if isinstance(value, dict | list | tuple):
        for child in value.values() if isinstance(value, dict) else value:
            _storable(child, depth + 1)
    elif not (value is None or isinstance(value, str | int | float)):
        raise ValueError(f"{type(value).__name__} is not a JSON value")
    return value


def encodable(text: str) -> str:
    """Return a text that UTF-8 can encode: each lone surrogate becomes `?`."""
    return text.encode(errors="replace").decode()


def is_unicode(text: str) -> bool:
    """Return True if a text can be encoded: it holds no lone surrogate."""
    return _SURROGATES.search(text) is None


def _keeps_apart(identifier: str) -> str:
    """Reject NUL and lone surrogates: removing or replacing them could make two ids equal."""
    if "\0" in identifier:
        raise ValueError("an id must not contain a NUL character")
    if not is_unicode(identifier):
        raise ValueError("an id must be valid Unicode")
    return identifier


def _document_keeps_apart(metadata: dict[str, Any]) -> dict[str, Any]:
    """Reject NUL and lone surrogates in `document_id`, which is an id; other values may have them.

    `strip_nul` removes them from the other values.
    """
    for key, value in metadata.items():
        if strip_nul(key) == "document_id" and value != strip_nul(value):
            raise ValueError("document_id must be valid Unicode without NUL")
    return metadata


def _id_length(identifier: str) -> str:
    """Check the length of an id."""
    if not 1 <= len(identifier) <= MAX_ID_LENGTH:
        raise ValueError(f"an id must have 1 to {MAX_ID_LENGTH} characters (got {len(identifier)})")
    return identifier


# `_storable` checks the depth before `strip_nul` recurses.
Metadata = Annotated[
    dict[str, Any],
    AfterValidator(_storable),
    AfterValidator(_document_keeps_apart),
    AfterValidator(strip_nul),
]
"""A JSON object. Strings, numbers, booleans and lists of these can be filtered on."""

Identifier = Annotated[
    str,
    AfterValidator(_keeps_apart),
    AfterValidator(_id_length),
    Field(json_schema_extra={"minLength": 1, "maxLength": MAX_ID_LENGTH}),
]
"""1 to 255 characters without NUL or lone surrogates; slashes, quotes, dots and emoji are fine."""


Storable = Annotated[str, AfterValidator(strip_nul)]
"""A string; NUL and lone surrogates are removed."""
