"""Names of models in a provider's settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Protocol, TypeVar

from pydantic import StringConstraints

from corral.api.errors import NotFound

ModelName = Annotated[str, StringConstraints(min_length=1, max_length=255)]


class Named(Protocol):
    """A model's settings."""

    model: str


M = TypeVar("M", bound=str | Named)


def each_once(models: list[M]) -> list[M]:
    """Return the models unchanged after checking that their names are unique.

    Raises:
        ValueError: Two models have the same name.
    """
    names = [model if isinstance(model, str) else model.model for model in models]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{twice[0]!r} appears twice")
    return models


def not_served(provider_id: str, kind: str, model: str, known: Iterable[str]) -> NotFound:
    """Return the error for a model that is not configured; `kind` is its purpose."""
    return NotFound(
        f"{provider_id} does not serve the {kind} model {model!r}.",
        hint=f"Known: {', '.join(known)}.",
    )
