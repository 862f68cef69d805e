"""Language models of the configuration, found by name."""

from __future__ import annotations

import re
from typing import Protocol, runtime_checkable

from corral.api.errors import InvalidRequest

_THOUGHTS = re.compile(r"\A\s*<think>.*?(?:</think>|\Z)", re.DOTALL)


@runtime_checkable
class LanguageModels(Protocol):
    """Finds language models; `Stack` is one."""

    def inference_models(self) -> list[tuple[str, str]]:
        """Return (provider_id, model) for every language model of the configuration."""

    async def complete(self, model: str, prompt: str) -> str:
        """Return a model's short answer to a prompt."""


def serving(library: object, model: str, field: str, without: str) -> tuple[str, LanguageModels]:
    """Return the provider id of a model, and the library that finds it.

    Args:
        library: Finds the model if it is a `LanguageModels`, such as a `Stack`.
        field: Name of the request field with the `model`.
        without: Hint for a configuration without language models.

    Raises:
        InvalidRequest: No language model is configured, or not this one.
    """
    models = library if isinstance(library, LanguageModels) else None
    providers = {name: each for each, name in models.inference_models()} if models else {}
    if models is None or not providers:
        raise InvalidRequest(
            f"{field.rpartition('.')[2]} needs a language model, and none is configured.",
            hint=without,
            field=field,
        )
    if model not in providers:
        raise InvalidRequest(
            f"No inference provider serves the model {model!r}.",
            hint=f"Known: {', '.join(providers)}.",
            field=f"{field}.model",
        )
    return providers[model], models


def without_thoughts(answer: str) -> str:
    """Return a model's answer without the thoughts in `<think>` at its beginning."""
    return _THOUGHTS.sub("", answer)
