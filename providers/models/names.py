"""The names of the models in a provider's settings."""

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
    """Return models, each with a name of its own; a check of settings.

    Raises:
        ValueError: Two have the same name.
    """
    names = [model if isinstance(model, str) else model.model for model in models]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{twice[0]!r} appears twice")
    return models


def not_served(provider_id: str, kind: str, model: str, known: Iterable[str]) -> NotFound:
    """Return the refusal of a model that is not configured; `kind` says what it would be for."""
    return NotFound(
        f"{provider_id} does not serve the {kind} model {model!r}.",
        hint=f"Known: {', '.join(known)}.",
    )
