"""Language models of the configuration, found by name."""

from __future__ import annotations

import re
from typing import Protocol, runtime_checkable

from corral.api.errors import InvalidRequest
from corral.api.invisible import clean_text

_THOUGHTS = re.compile(r"\A\s*<think>.*?(?:</think>|\Z)", re.DOTALL)
_BLANK_LINE = re.compile(r"\n\s*\n")
_QUOTED = re.compile(r"\"([^\"]*)\"|“([^“”]*)”|„([^„“]*)“|«([^«»]*)»|'([^']*)'|`([^`]*)`")


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
        model: Its name.
        field: The request's or the registration's field that names it.
        without: Hint for a configuration without language models.

    Raises:
        InvalidRequest: No language model is configured, or not this one.
    """
    models = library if isinstance(library, LanguageModels) else None
    providers = {name: each for each, name in models.inference_models()} if models else {}
    if models is None or not providers:
        raise InvalidRequest(
            f"{field} names a language model, and none is configured.",
            hint=without,
            field=field,
        )
    if model not in providers:
        raise InvalidRequest(
            f"No inference provider serves the model {model!r}.",
            hint=f"Known: {', '.join(providers)}.",
            field=field,
        )
    return providers[model], models


def without_thoughts(answer: str) -> str:
    """Return a model's answer without the thoughts in `<think>` at its beginning."""
    return _THOUGHTS.sub("", answer)


def first_line(answer: str, most: int) -> str:
    """Return the first paragraph of a model's answer as one line; "" for none.

    Remove thoughts in `<think>`, invisible characters and quotation marks around the whole.

    Args:
        answer: Unchecked.
        most: Maximum number of characters; a longer paragraph is cut between words.
    """
    text = clean_text(without_thoughts(answer)).strip()
    line = " ".join(_BLANK_LINE.split(text, maxsplit=1)[0].split())
    if quoted := _QUOTED.fullmatch(line):
        line = next(inner for inner in quoted.groups() if inner is not None).strip()
    if len(line) > most:
        cut = line[: most + 1]
        line = cut.rpartition(" ")[0] or cut[:-1]
    return line
