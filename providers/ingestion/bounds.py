"""What a document goes beyond: one error for every bound of `rag.document_limits`."""

from __future__ import annotations

from corral.api.errors import InvalidRequest


def beyond(what: str, most: float, setting: str) -> InvalidRequest:
    """Return the error of a document that is over a bound.

    Args:
        what: What it has or takes too much of, "pages".
        most: How many are allowed.
        setting: The bound's name in `rag.document_limits`.
    """
    return InvalidRequest(
        f"More than {most:,.10g} {what} in one document.",
        hint=f"Split it; the operator's setting is rag.document_limits.{setting}.",
        field="content",
    )
