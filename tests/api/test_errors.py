"""Errors: the tree as its docstring draws it, and messages that say what to do."""

from __future__ import annotations

import re

import pytest

from corral.api import errors
from corral.api.errors import (
    ConfigError,
    CorralError,
    InvalidEmbedding,
    InvalidFilter,
    InvalidRequest,
    MissingDependency,
    ProviderError,
    ProviderTimeout,
    Unavailable,
    UnknownProvider,
    UnsupportedMode,
)

DRAWN = re.compile(
    r"^ {4}(?P<indent>[│ ]*)(?:[├└]── )?(?P<name>[A-Z]\w+)(?: .*?(?P<status>\d{3}))?$"
)


def drawn_tree() -> dict[str, str | None]:
    """Return class name -> name of its parent, as the module's docstring draws it."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = DRAWN.match(line)
        if not found or not ("──" in line or line.strip() == "CorralError"):
            continue
        depth = 0 if "──" not in line else len(found["indent"]) // 4 + 1
        path[depth:] = [found["name"]]
        parents[found["name"]] = path[depth - 1] if depth else None
    return parents


def test_the_tree_is_as_drawn() -> None:
    """Every error class stands in the docstring's tree, below its base, and nothing else does.

    If this fails: draw the new class, with the status that the server gives it.
    """
    classes = {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    real = {
        name: None if value is CorralError else value.__bases__[0].__name__
        for name, value in classes.items()
    }
    assert drawn_tree() == real


def test_every_drawn_error_has_a_status() -> None:
    """Each class below the base is drawn with one HTTP status, 4xx or 5xx."""
    lines = [line for line in (errors.__doc__ or "").splitlines() if "── " in line]
    assert lines
    assert all(re.search(r"\b[45]\d\d$", line) for line in lines)


def test_an_error_says_what_and_what_to_do() -> None:
    """str() is the message followed by the hint; both and the field are kept apart."""
    error = InvalidRequest("k is 0.", hint="Use 1 to 1000.", field="k")
    assert str(error) == "k is 0. Use 1 to 1000."
    assert (error.message, error.hint, error.field) == ("k is 0.", "Use 1 to 1000.", "k")


def test_hint_and_field_are_optional() -> None:
    """Without a hint nothing trails the message."""
    assert str(CorralError("Gone.")) == "Gone."
    assert CorralError("Gone.").field is None


@pytest.mark.parametrize("kind", [Unavailable, ProviderTimeout])
def test_only_a_backend_that_may_come_back_is_retryable(kind: type[CorralError]) -> None:
    """Unavailable and ProviderTimeout are retryable; a refusal and a backend's error are not."""
    assert kind("down").retryable
    assert not any(e("x").retryable for e in (InvalidRequest, ProviderError, ConfigError))


@pytest.mark.parametrize("kind", [InvalidEmbedding, InvalidFilter])
def test_refusals_are_invalid_requests(kind: type[CorralError]) -> None:
    """A caller that catches InvalidRequest catches every refusal of its request."""
    assert isinstance(kind("bad"), InvalidRequest)


def test_an_unknown_mode_lists_the_valid_ones() -> None:
    """The message quotes what was asked and names every mode."""
    error = UnsupportedMode("fuzzy", ["vector", "keyword"])
    assert str(error) == "Unknown search mode 'fuzzy'. Valid modes: vector, keyword."
    assert error.field == "mode"


def test_an_unknown_provider_names_the_nearest_one() -> None:
    """A typo is answered with the provider that was probably meant, and with all of them."""
    error = UnknownProvider("sqlit", ["qdrant", "sqlite"], field="provider_id")
    assert str(error) == "Unknown provider 'sqlit'. Did you mean 'sqlite'? Known: qdrant, sqlite."
    assert error.field == "provider_id"


@pytest.mark.parametrize(("known", "hint"), [(["sqlite"], "Known: sqlite."), ([], "Known: none.")])
def test_nothing_near_is_nothing_suggested(known: list[str], hint: str) -> None:
    """A name that resembles none gets no suggestion, and an empty list says so."""
    assert UnknownProvider("weaviate", known).hint == hint


def test_a_missing_dependency_carries_the_command_that_installs_it() -> None:
    """The message names who needs what; the command can be copied from it."""
    error = MissingDependency("inline::minilm", "onnxruntime", "pip install 'corral-rag[minilm]'")
    assert isinstance(error, ConfigError)
    assert str(error) == (
        "inline::minilm needs onnxruntime, which is not installed. "
        "Run: pip install 'corral-rag[minilm]'"
    )
    assert error.command == "pip install 'corral-rag[minilm]'"
