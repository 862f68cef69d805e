"""Shared parts of the commands: target, options, and custom value types."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import click

if TYPE_CHECKING:
    from corral.api.vector_dbs import SplitOn
    from corral.server.cli.client import Client

P = ParamSpec("P")
Command = TypeVar("Command", bound=Callable[..., Any])

EXISTING = click.Path(path_type=Path)


class _Output(click.Path):
    """A file to write, in an existing folder."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """Return the path."""
        file = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not file.absolute().parent.is_dir():
            self.fail(f"folder {file.parent} does not exist.", param, ctx)
        return file


INPUT = click.Path(exists=True, dir_okay=False, path_type=Path)
OUTPUT = _Output(dir_okay=False, path_type=Path)

# Literals, because importing the enumerations would slow down the start; a test compares them.
MODES = click.Choice(["vector", "keyword", "hybrid"])
METRICS = click.Choice(["cosine", "l2", "dot"])
RANKERS = click.Choice(["rrf", "weighted", "max"])
ROLES = click.Choice(["reader", "writer", "admin"])

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
"""Option of every command that prints data."""


batch_option = click.option(
    "--batch",
    type=click.IntRange(1, 10_000),
    help="Chunks per step. [default: 1/50 of all, between 500 and 10000]",
)
"""Option of every command that reads all chunks."""


def _tokens_option(flag: str, sizes: click.IntRange, text: str) -> Callable[[Command], Command]:
    name = f"{flag.strip('-').replace('-', '_')}_in_tokens"
    return click.option(flag, name, type=sizes, metavar="TOKENS", help=text)


chunk_size_option = _tokens_option(
    "--chunk-size",
    click.IntRange(1, 8192),
    "Maximum number of cl100k tokens per chunk (1-8192). [default: DB's own, else 256]",
)
"""Option of commands that split documents or register their splitting."""

overlap_option = _tokens_option(
    "--overlap",
    click.IntRange(0, 4096),
    "Tokens repeated from the previous chunk, at most half of --chunk-size. [default: DB's own "
    "share, else 32]",
)
"""Beside `chunk_size_option`."""


def _split_on(_: click.Context, __: click.Parameter, text: str | None) -> SplitOn | None:
    if text is not None and text in {*"123456"}:
        return int(text)
    if text:
        from corral.api.vector_dbs import MAX_SPLIT_ON

        if len(text) > MAX_SPLIT_ON:
            raise click.UsageError(
                f"--split-on must have at most {MAX_SPLIT_ON} characters (got {len(text)})."
            )
    return text


split_on_option = click.option(
    "--split-on",
    metavar="TEXT",
    callback=_split_on,
    help="Text at which chunks end, such as '======'; 1 to 6: headings of this level and above; '' "
    "for none. [default: DB's own, else none]",
)
"""Beside `chunk_size_option`."""


def _check_terminal(_: click.Context, __: click.Parameter, yes: bool) -> bool:
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("Not a terminal; pass --yes.")
    return yes


yes_option = click.option(
    "--yes", is_flag=True, callback=_check_terminal, help="Delete without asking."
)
"""Option of every command that deletes."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target of the commands: a server's URL, or the app in process, and a tenant.

    Attributes:
        url: The server; None: in process, with `home` and `config`.
        home: The data folder.
        config: The configuration file.
        key: The API key for `url`; None: no key.
        tenant: The tenant of commands in process.
    """

    url: str | None
    home: Path | None
    config: Path | None
    key: str | None = None
    tenant: str = ""

    def local_only(self, command: str, *, of_a_tenant: bool = False) -> None:
        """Refuse `--url` for a local command, and a `--tenant` that it ignores."""
        if self.url is not None:
            raise click.UsageError(f"{command} works only on this machine; leave out --url.")
        if self.tenant and not of_a_tenant:
            raise click.UsageError(f"{command} works for all tenants; leave out --tenant.")

    def run(
        self,
        work: Callable[Concatenate[Client, P], Coroutine[Any, Any, None]],
        /,
        *arguments: P.args,
        **options: P.kwargs,
    ) -> None:
        """Run a coroutine function with a client that is connected to the target."""
        import asyncio

        from corral.server.cli import connecting

        async def connected() -> None:
            where = (self.url, self.home, self.config, self.key, self.tenant)
            async with connecting.connect(*where) as client:
                await work(client, *arguments, **options)

        asyncio.run(connected())


def on_client(
    work: Callable[Concatenate[Client, P], Coroutine[Any, Any, None]],
) -> Callable[..., None]:
    """Turn a coroutine function that takes a connected client into a command."""

    @click.pass_obj
    @wraps(work)
    def command(target: Target, /, *arguments: P.args, **options: P.kwargs) -> None:
        target.run(work, *arguments, **options)

    return command


def weights_option(help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option --field-weight: the weights by field, with the content's; None for none."""

    def weights(
        _: click.Context, __: click.Parameter, given: tuple[str, ...]
    ) -> dict[str, float] | None:
        return {"content": 1.0, **dict(map(_field_weight, given))} if given else None

    return click.option(
        "--field-weight",
        "weights",
        multiple=True,
        metavar="FIELD=WEIGHT",
        callback=weights,
        help=help_text,
    )


def _field_weight(given: str) -> tuple[str, float]:
    """Return the field and weight of `FIELD=WEIGHT`; the server checks the range."""
    field, separator, weight = given.rpartition("=")
    try:
        if not separator or not field:
            raise ValueError
        return field, float(weight)
    except ValueError:
        raise click.BadParameter(
            f"must be FIELD=WEIGHT, such as title=2 (got {given!r}).", param_hint="--field-weight"
        ) from None


def number_or_auto(given: str) -> int | str:
    """Return the number, or `auto`; the server checks the range."""
    if given == "auto":
        return given
    if given.isdecimal() and int(given) > 0:
        return int(given)
    raise click.UsageError(f"--k must be a number from 1 or auto (got {given!r}).")


def encoding_of(given: str | None) -> str | None:
    """Return the name of an encoding of text; None for None."""
    try:
        if given is not None:
            "".encode(given)
    except LookupError:
        raise click.UsageError(
            f"--encoding must be a name such as latin-1 or utf-16 (got {given!r})."
        ) from None
    return given


def typed(given: str) -> Any:
    """Return `{"type": NAME}` for a name, and the parsed value for JSON."""
    return json.loads(given) if _is_json(given) else {"type": given}


def named_option(given: str, flag: str = "--option") -> tuple[str, Any]:
    """Return the field and value of `NAME=VALUE`; a value that is not JSON is text."""
    name, separator, value = given.partition("=")
    if not name or not separator:
        raise click.UsageError(f"{flag} must be NAME=VALUE (got {given!r}).")
    return name, json.loads(value) if _is_json(value) else value


def _is_json(given: str) -> bool:
    try:
        json.loads(given)
    except ValueError:
        return False
    return True
