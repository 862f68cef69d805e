"""`corral dbs`: options and dispatch. Imports nothing heavier than click."""

from __future__ import annotations

from typing import Any

import click

from corral.server.command_line.options import (
    METRICS,
    MODES,
    RANKERS,
    Target,
    batch_option,
    field_weight,
    json_option,
    yes_option,
)


@click.group()
def dbs() -> None:
    """Create, list, show, change, delete and prune vector DBs."""


@dbs.command("list")
@click.option("--orphans", is_flag=True, help="List stored data that no vector DB owns.")
@json_option
@click.pass_obj
def list_dbs(target: Target, orphans: bool, as_json: bool) -> None:
    """List vector DBs with their numbers of chunks and documents."""
    target.run("db_commands.list_orphans" if orphans else "db_commands.list_dbs", as_json=as_json)


@dbs.command("prune")
@yes_option
@json_option
@click.pass_obj
def prune(target: Target, yes: bool, as_json: bool) -> None:
    """Delete stored data that no vector DB owns.

    A process killed while it registers a vector DB leaves such data behind. See it first with
    `corral dbs list --orphans`. If several Corrals share an engine's server, each with its own data
    folder, the vector DBs of the others look the same: do not prune there.
    """
    target.run("db_commands.prune", ask=not yes, as_json=as_json)


@dbs.command("show")
@click.argument("db")
@json_option
@click.pass_obj
def show_db(target: Target, db: str, as_json: bool) -> None:
    """Show a vector DB's settings and size."""
    target.run("db_commands.show_db", db, as_json=as_json)


@dbs.command("create")
@click.argument("db")
@click.option("--provider", "provider_id", help="Provider id. [default: the first one configured]")
@click.option("--model", "embedding_model", help="Embedding model. [default: the server's]")
@click.option("--mode", "search_mode", type=MODES, help="Search mode. [default: hybrid]")
@click.option("--language", help="Language, by ISO code or English name. [default: english]")
@click.option("--metric", type=METRICS, help="Distance metric. [default: cosine]")
@click.option("--ranker", type=RANKERS, help="Fusion of hybrid results. [default: weighted]")
@click.option(
    "--field-weight",
    "weights",
    multiple=True,
    metavar="FIELD=WEIGHT",
    help="Keyword weight of a field; repeatable. [default: content=1 title=2]",
)
@json_option
@click.pass_obj
def create_db(
    target: Target,
    /,
    db: str,
    ranker: str | None,
    weights: tuple[str, ...],
    as_json: bool,
    **settings: str | None,
) -> None:
    """Register a vector DB. Repeating it with the same settings changes nothing."""
    given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    if ranker is not None:
        given["ranker"] = {"type": ranker}
    if weights:
        given["field_weights"] = {"content": 1.0, **dict(map(field_weight, weights))}
    target.run("db_commands.create_db", db, given, as_json=as_json)


@dbs.command("change")
@click.argument("db")
@click.option("--language", help="Language, by ISO code or English name.")
@click.option(
    "--field-weight",
    "weights",
    multiple=True,
    metavar="FIELD=WEIGHT",
    help="Keyword weight of a field; repeatable, and all of them are replaced.",
)
@batch_option
@json_option
@click.pass_obj
def change_db(
    target: Target,
    db: str,
    language: str | None,
    weights: tuple[str, ...],
    batch: int | None,
    as_json: bool,
) -> None:
    """Change how the words of a vector DB are indexed.

    Nothing is embedded again. A second index is built beside the first and takes its place when it
    is complete. Queries and inserts go on all the while. Run the same command to resume an
    interrupted one.
    """
    given: dict[str, Any] = {} if language is None else {"language": language}
    if weights:
        given["field_weights"] = {"content": 1.0, **dict(map(field_weight, weights))}
    if not given:
        raise click.UsageError("Nothing to change: pass --language or --field-weight.")
    target.run("rebuild_commands.change", db, given, batch=batch, as_json=as_json)


@dbs.command("delete")
@click.argument("db")
@yes_option
@click.pass_obj
def delete_db(target: Target, db: str, yes: bool) -> None:
    """Delete a vector DB and all its chunks."""
    target.run("db_commands.delete_db", db, ask=not yes)
