"""What reading a document may take: the part of the configuration that each reading process needs.

Nothing heavier than pydantic is imported here, since a reading process is to start quickly.
"""

from __future__ import annotations

from pydantic import Field

from corral.api.errors import InvalidRequest
from corral.providers.config_section import Section


class DocumentLimits(Section):
    """What reading one document may take; beyond it the answer is a 400 that names the setting."""

    max_pages: int = Field(default=2000, ge=1, description="Pages of a PDF.")
    max_paragraphs: int = Field(
        default=100_000, ge=1, description="Paragraphs and table cells of a Word file."
    )
    max_characters: int = Field(default=32_000_000, ge=1, description="Characters of the text.")
    max_seconds: float = Field(default=30, gt=0, description="Time to read it.")
    max_memory_mib: int = Field(
        default=1024,
        ge=256,
        description="Memory to read it, where the system can bound that (Linux).",
    )

    def exceeded(self, what: str, setting: str) -> InvalidRequest:
        """Return the error of a document with more than a setting allows of something: "pages"."""
        return InvalidRequest(
            f"More than {getattr(self, setting):,.10g} {what} in one document.",
            hint=f"Split it; the operator's setting is rag.document_limits.{setting}.",
            field="content",
        )
