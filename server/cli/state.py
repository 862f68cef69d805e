"""`corral state`, on the state that the configuration names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from corral.server.cli.options import Target

if TYPE_CHECKING:
    from corral.providers.base.config import RunConfig


@click.group()
def state() -> None:
    """Upgrade or copy the tables of the state."""


@state.command("upgrade")
@click.pass_obj
def upgrade(target: Target) -> None:
    """Upgrade the tables of `state`, after its servers are stopped.

    A PostgreSQL database needs this if a newer Corral refuses it. A SQLite file is also upgraded
    when it is first opened.
    """
    target.local_only("state upgrade")
    from corral.providers.state.state import State

    folder, config = _opened(target)
    opened = State(folder, config.state.get_secret_value())
    before, now = opened.upgrade()
    if before == now:
        click.echo(f"{opened.place.name} has schema version {now} already.")
    else:
        click.echo(f"{opened.place.name} is upgraded from schema version {before or 0} to {now}.")


@state.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("destination", metavar="TO")
@click.pass_obj
def copy(target: Target, source: str, destination: str) -> None:
    """Copy all tables to an empty database, after the servers are stopped.

    FROM and TO are `sqlite`, for `state.db` in the data folder, or the URL of a PostgreSQL
    database. A URL can contain '${env.NAME}', as in run.yaml, which keeps the password out of the
    list of processes. Either everything is copied, or nothing.
    """
    target.local_only("state copy")
    from corral.providers.base.config import substitute
    from corral.providers.stack.host import host_id, moved_registration
    from corral.providers.state.copy import copy_state
    from corral.providers.state.opening import Place

    folder, config = _opened(target)
    read, written = (Place(folder, substitute(url, os.environ)) for url in (source, destination))

    def moved(registration: str) -> str:
        if read.is_sqlite == written.is_sqlite:
            return registration
        shared = not read.is_sqlite
        return moved_registration(registration, config, host_id(folder), shared=shared)

    counts = copy_state(read, written, moved)
    tables = sum(map(bool, counts.values()))
    click.echo(
        f"Copied {sum(counts.values()):,} rows of {tables} tables from {read.name} to "
        f"{written.name}."
    )
    click.echo(
        "Set `state` in run.yaml before you start a server. Contents of files stay where `files` "
        "says, and chunks where the providers say.",
        err=True,
    )


def _opened(target: Target) -> tuple[Path, RunConfig]:
    """Return the data folder and the configuration."""
    from corral.providers.base.config import data_home, load_config
    from corral.server.cli.connecting import check_home

    folder = target.home or data_home()
    check_home(folder)
    return folder, load_config(target.config, folder)
