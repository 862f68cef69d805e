"""What reading a document may take: the part of the configuration that each reading process needs.

A reading process is to start quickly, so that nothing heavy is imported here: pydantic checks this
dataclass where `config.py` names it, and hands `metadata` to its own `Field`.
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
    max_characters: int = _limit(32_000_000, "Characters of the text.", ge=1)
    max_seconds: float = _limit(30, "Time to read it.", gt=0)
    max_memory_mib: int = _limit(
        1024, "Memory to read it, on systems that can limit it (Linux).", ge=256
    )

    # As of `Section`: an unknown key is refused, and no error quotes a value.
    __pydantic_config__: ClassVar[dict[str, Any]] = {
        "extra": "forbid", "allow_inf_nan": False, "hide_input_in_errors": True,
    }  # fmt: skip

    def exceeded(self, what: str, setting: str) -> InvalidRequest:
        """Return the error of a document with more than a setting allows of something: "pages"."""
        return InvalidRequest(
            f"More than {getattr(self, setting):,.10g} {what} in one document.",
            hint=f"Split it; the operator's setting is rag.document_limits.{setting}.",
            field="content",
        )
