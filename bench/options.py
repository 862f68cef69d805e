"""Options of several commands of `corral bench`. Imports nothing heavier than click."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import click

from corral.api.errors import InvalidRequest, MissingDependency

Command = TypeVar("Command", bound=Callable[..., Any])


def names(flag: str, one: str, text: str, default: str = "") -> Callable[[Command], Command]:
    """Return an option for comma-separated names."""
    return _joined(flag, one, text, default, str)


def numbers(flag: str, text: str, default: str = "") -> Callable[[Command], Command]:
    """Return an option for comma-separated numbers."""
    return _joined(flag, "NUMBER", text, default, int)


def _joined(
    flag: str, one: str, text: str, default: str, kind: type[str] | type[int]
) -> Callable[[Command], Command]:
    def parts(context: click.Context, option: click.Parameter, given: str) -> list[Any]:
        try:
            return [kind(part.strip()) for part in given.split(",") if part.strip()]
        except ValueError:
            said = f"{flag} takes a list of numbers, got {given!r}."
            raise InvalidRequest(said, field=option.name) from None

    about: dict[str, Any] = {"show_default": bool(default), "metavar": f"{one},...", "help": text}
    return click.option(flag, callback=parts, default=default, **about)


FILE = click.Path(path_type=Path)
FOLDER = click.Path(path_type=Path, file_okay=False)
POSITIVE = click.IntRange(min=1)

BACKENDS = names("--backends", "NAME", "Backends to measure.", "sqlite")
CONFIG = click.option("--config", type=FILE, help="A run.yaml with the backends' settings.")
DATA = click.option("--data", multiple=True, metavar="DIR", help="Judged data; repeatable.")
EMBEDDER = click.option(
    "--embedder",
    "model",
    metavar="MODEL",
    help="Embedding model of the judged data. [default: the configuration's]",
)
MAX_SECONDS = click.option(
    "--max-seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="Start no measurement after this many seconds.",
)
JUDGED_SETS = click.option(
    "--data", multiple=True, required=True, metavar="DIR", help="Judged data; repeatable."
)
LANGUAGES = click.option(
    "--language",
    "languages",
    multiple=True,
    metavar="[SET=]LANGUAGE",
    help="Language of all sets, or of one set. [default: from a name such as xquad-de, else "
    "english]",
)
MODES = names("--modes", "MODE", "Search modes to measure.", "vector,keyword,hybrid")
MOST_QUESTIONS = click.option(
    "--most",
    type=POSITIVE,
    default=300,
    show_default=True,
    help="Maximum number of questions per set.",
)
OUT = click.option(
    "--out", type=FOLDER, help="Folder for the reports. [default: a new one in ./corral-bench]"
)
RESUME = click.option("--resume", is_flag=True, help="Continue the run in --out.")
SEED = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Random seed.",
)

SHARED = (
    BACKENDS,
    DATA,
    MODES,
    names(
        "--filters",
        "SHARE",
        "Filters to measure, by the share of chunks that pass. Queries without one always run.",
        "1%,50%",
    ),
    EMBEDDER,
    SEED,
    OUT,
    CONFIG,
    MAX_SECONDS,
    click.option(
        "--max-docs",
        "max_documents",
        type=POSITIVE,
        help="Maximum number of documents per size or set.",
    ),
    RESUME,
)
"""Options of `speed`."""


def together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Combine several options into one decorator, in the order of the help."""

    def decorated(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


def commands(module: str = "commands") -> ModuleType:
    """Import a module of this package when a command needs it.

    Args:
        module: Name of the module.

    Raises:
        MissingDependency: The extra `bench` is not installed.
    """
    try:
        return importlib.import_module(f"corral.bench.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("corral"):
            raise
        command = "pip install 'corral-rag[bench]'"
        raise MissingDependency("The benchmark", str(error.name), command) from None
