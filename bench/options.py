"""What several commands of `corral bench` share. Imports nothing heavier than click."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import click

from corral.api.errors import MissingDependency

Command = TypeVar("Command", bound=Callable[..., Any])

FILE = click.Path(path_type=Path)
FOLDER = click.Path(path_type=Path, file_okay=False)
POSITIVE = click.IntRange(min=1)

BACKENDS = click.option(
    "--backends",
    default="sqlite",
    show_default=True,
    metavar="NAME,...",
    help="Backends to measure.",
)
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
    help="Time after which no measurement begins.",
)
MODES = click.option(
    "--modes",
    default="vector,keyword,hybrid",
    show_default=True,
    metavar="MODE,...",
    help="Search modes to measure.",
)
OUT = click.option(
    "--out", type=FOLDER, help="Folder of the reports. [default: a new one in ./corral-bench]"
)
RESUME = click.option("--resume", is_flag=True, help="Continue the run in --out.")
SEED = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of all that is random.",
)

SHARED = (
    BACKENDS,
    DATA,
    MODES,
    click.option(
        "--filters",
        default="1%,50%",
        show_default=True,
        metavar="SHARE,...",
        help="Shares of the chunks that pass; asking without a filter comes first.",
    ),
    EMBEDDER,
    SEED,
    OUT,
    CONFIG,
    MAX_SECONDS,
    click.option(
        "--max-docs", "max_documents", type=POSITIVE, help="Most documents of a size or a set."
    ),
    RESUME,
)
"""Of `speed` and `fidelity`."""


def together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return one decorator for several options, which help shows in this order."""

    def decorated(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


def commands(module: str = "commands") -> ModuleType:
    """Return what the commands do.

    Args:
        module: Of this package.

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
