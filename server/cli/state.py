"""`corral state`, on the state that the configuration names."""

from __future__ import annotations

import click

from corral.server.cli.options import Target


@click.group()
def state() -> None:
    """Upgrade the tables of the state."""


@state.command("upgrade")
@click.pass_obj
def upgrade(target: Target) -> None:
    """Upgrade the tables of `state`, after its servers are stopped.

    A PostgreSQL database needs this if a newer Corral refuses it. A SQLite file is also upgraded
    when it is first opened.
    """
    target.local_only("state upgrade")
    from corral.providers.base.config import data_home, load_config
    from corral.providers.state.state import State
    from corral.server.cli.connecting import check_home

    folder = target.home or data_home()
    check_home(folder)
    opened = State(folder, load_config(target.config, folder).state.get_secret_value())
    before, now = opened.upgrade()
    if before == now:
        click.echo(f"{opened.place.name} has schema version {now} already.")
    else:
        click.echo(f"{opened.place.name} is upgraded from schema version {before or 0} to {now}.")
