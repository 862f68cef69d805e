"""Limits for reading a document: the part of the configuration that each reading process needs.

A reading process must start fast, so this module imports nothing heavy: pydantic validates this
dataclass as a field in `config.py`, and passes `metadata` to its own `Field`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from corral.api.errors import InvalidRequest

T = TypeVar("T")


def _limit(default: T, description: str, **bound: float) -> T:
    made: T = field(default=default, metadata={"description": description, **bound})
    return made


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    """Limits for reading one document; over one, the error (400) names the setting."""

    max_pages: int = _limit(2000, "Pages of a PDF.", ge=1)
    max_paragraphs: int = _limit(100_000, "Paragraphs and table cells of a Word file.", ge=1)
    max_parts: int = _limit(
        1000, "Documents in a mail or an archive, also in the archives in it.", ge=1
    )
    max_rows: int = _limit(10_000, "Rows of an uploaded table that become documents.", ge=1)
    max_characters: int = _limit(32_000_000, "Characters of the text.", ge=1)
    max_seconds: float = _limit(30, "Time to read it.", gt=0)
    max_memory_mib: int = _limit(
        1024, "Memory to read it, on systems that can limit it (Linux).", ge=256
    )

    # As in `Section`: an unknown key is rejected, and no error quotes a value.
    __pydantic_config__: ClassVar[dict[str, Any]] = {
        "extra": "forbid", "allow_inf_nan": False, "hide_input_in_errors": True,
    }  # fmt: skip

    def exceeded(self, what: str, setting: str) -> InvalidRequest:
        """Return the error for a document over a limit.

        Args:
            what: The limited quantity, such as "pages".
            setting: Name of the field.
        """
        return InvalidRequest(
            f"More than {getattr(self, setting):,.10g} {what} in one document.",
            hint=f"Split it; the operator's setting is rag.document_limits.{setting}.",
            field="content",
        )
