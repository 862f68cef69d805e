"""What pydantic finds wrong, in the words of a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def said(finding: Mapping[str, Any]) -> str:
    """Return what one of `ValidationError.errors()` says, without pydantic's name for its kind."""
    return str(finding["msg"]).removeprefix("Value error, ")
