"""The group of all commands, including those of other packages; errors become messages."""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from typing import IO, Any

import click

from corral.api.errors import (
    ConfigError,
    Conflict,
    CorralError,
    InvalidRequest,
    MissingDependency,
    NotFound,
)
from corral.server.cli.display import as_run


class _Failure(click.ClickException):
    """An error for the user: a line with the message, a line with the hint."""

    def __init__(self, message: str, hint: str, exit_code: int) -> None:
        super().__init__(message)
        self.hint = hint
        self.exit_code = exit_code  # type: ignore[misc]  # click has one for the class

    def show(self, file: IO[Any] | None = None) -> None:
        """Print both to stderr."""
        click.echo(as_run(f"Error: {self.message}"), file=file or sys.stderr)
        if self.hint:
            click.echo(as_run(f"Hint: {self.hint}"), file=file or sys.stderr)


class Corral(click.Group):
    """The group of all commands; turns expected errors into messages and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, including those of other packages."""
        return sorted({*super().list_commands(ctx), *_entry_points().names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command of this file, or load one from its entry point."""
        command = super().get_command(ctx, cmd_name)
        if command is not None or cmd_name not in _entry_points().names:
            return command
        loaded: click.Command = _entry_points()[cmd_name].load()
        return loaded

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except CorralError as error:
            raise _Failure(error.message, error.hint, _exit_code(error)) from error
        except BrokenPipeError:  # the reader has closed the pipe, so click exits silently
            raise
        except OSError as error:
            _drop_unwritten()
            place = f"{error.filename}: " if error.filename else ""
            raise _Failure(f"{place}{error.strerror or error}.", "", 1) from error


def _drop_unwritten() -> None:
    """Discard output that cannot be written; Python would retry at exit and report the failure."""
    try:
        sys.stdout.flush()
    except OSError:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


@cache
def _entry_points() -> EntryPoints:
    return entry_points(group="corral.commands")


def _exit_code(error: CorralError) -> int:
    """Return 2 if the input is to blame, 1 for every other failure."""
    given = getattr(error, "exit_code", None)
    if isinstance(given, int):
        return given
    if isinstance(error, MissingDependency):
        return 1
    return 2 if isinstance(error, InvalidRequest | NotFound | Conflict | ConfigError) else 1
