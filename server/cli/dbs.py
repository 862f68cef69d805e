"""`corral dbs`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from corral.server.cli import display
from corral.server.cli.copies import change
from corral.server.cli.failures import BAD_INPUT, JSON, CommandError
from corral.server.cli.options import (
    METRICS,
    MODES,
    RANKERS,
    Target,
    batch_option,
    chunk_size_option,
    json_option,
    on_client,
    overlap_option,
    split_on_option,
    typed,
    weights_option,
    yes_option,
)
from corral.server.cli.paths import vector_db_path

if TYPE_CHECKING:
    from rich.console import RenderableType

    from corral.api.vector_dbs import SplitOn
    from corral.server.cli.client import Client

_FIRST = (
    "identifier", "provider_id", "chunk_count", "document_count", "embedding_model",
    "embedding_dimension", "search_mode",
)  # fmt: skip
IN_USE = "Not made by this installation: it may be in use elsewhere."


@click.group()
def dbs() -> None:
    """Create, list, show, change, delete and prune vector DBs."""


@dbs.command("list")
@click.option("--orphans", is_flag=True, help="List stored data that belongs to no vector DB.")
@json_option
@on_client
async def list_dbs(client: Client, orphans: bool, as_json: bool) -> None:
    """List vector DBs with their chunk and document counts."""
    if orphans:
        reply = await client.call("GET", "/v1/orphans")
        display.show_json(reply) if as_json else _show_orphans(reply)
        return
    vector_dbs = await client.vector_dbs(counts=True)
    none = display.as_run("No vector DB is registered. Create one: corral dbs create NAME")
    table = vector_dbs_table(vector_dbs) if vector_dbs else none
    display.answer(vector_dbs, table, as_json=as_json)


@dbs.command("prune")
@click.option(
    "--installation",
    metavar="ID",
    help="Delete what this installation made, or `unknown`. [default: this one]",
)
@yes_option
@json_option
@on_client
async def prune(client: Client, installation: str | None, yes: bool, as_json: bool) -> None:
    """Delete stored data that belongs to no vector DB.

    A process that is killed while it registers a vector DB can leave such data. Look at it first
    with `corral dbs list --orphans`.

    Deletes only what this installation (this data folder) made. If several share a database server,
    --installation ID deletes what another one made, its vector DBs included: name it only if that
    installation is gone for good. `unknown` stands for data that was made before installations had
    ids, in use or not.
    """
    reply = await client.call("GET", "/v1/orphans")
    is_other = installation not in (None, reply["installation"])
    orphans = _made_by(installation, reply) if is_other else reply["data"]
    if not (yes and as_json):
        _show_orphans({**reply, "data": orphans, "others": []})
        if not is_other:
            _count_others(reply["others"])
    if orphans:
        if not yes:
            warning = f" {IN_USE}" if is_other else ""
            click.confirm(f"Delete these for good ({len(orphans)})?{warning}", abort=True)
        names = [{key: one[key] for key in ("provider_id", "name")} for one in orphans]
        body: JSON = {"orphans": names, "installation": orphans[0]["installation"]}
        await client.call("POST", "/v1/orphans/remove", body)
    if as_json:
        display.show_json(orphans)
    elif orphans:
        click.echo(f"Deleted: {len(orphans)}.")


def _made_by(installation: str | None, reply: JSON) -> list[JSON]:
    """Return the data that another installation made; raise an error if there is none."""
    others: list[JSON] = reply["others"]
    orphans = [one for one in others if one["installation"] == installation]
    if not orphans:
        ids = sorted({one["installation"] for one in others})
        raise CommandError(
            f"No data of an installation {installation!r} was found.",
            hint=f"Others: {', '.join(ids) or 'none'}. This one: {reply['installation']}.",
            exit_code=BAD_INPUT,
        )
    return orphans


def _show_orphans(reply: JSON) -> None:
    orphans, others, failures = reply["data"], reply["others"], reply["failures"]
    if orphans:
        _show_table(orphans)
    else:
        click.echo("No orphans found.")
    for installation in sorted({one["installation"] for one in others}):
        click.echo(f"\nInstallation {installation}. {IN_USE}")
        _show_table([one for one in others if one["installation"] == installation])
    for one in failures:
        display.note(f"{one['provider_id']} did not answer: {one['message']}")
    if failures and not orphans:
        raise CommandError(f"{display.counted(len(failures), 'provider')} did not answer.")


def _count_others(others: list[JSON]) -> None:
    """Print the number of tables, collections or files of each other installation."""
    counts = Counter(one["installation"] for one in others)
    for installation, count in sorted(counts.items()):
        click.echo(f"Not deleted: {count} of installation {installation}.")


def _show_table(orphans: list[JSON]) -> None:
    table = display.new_table("provider#", "vector DB#", "name#")
    for one in orphans:
        display.add_row(table, one["provider_id"], one["vector_db_id"] or "?", one["name"])
    display.show(table)


@dbs.command("show")
@click.argument("db")
@json_option
@on_client
async def show_db(client: Client, db: str, as_json: bool) -> None:
    """Show a vector DB's settings and size."""
    settings = await client.vector_db(db, counts=True)
    if as_json:
        display.show_json(settings)
        return
    if settings.get("fingerprint"):
        parts = json.loads(settings["fingerprint"])
        settings["fingerprint"] = {name: _short(str(part)) for name, part in parts.items()}
    first = {name: settings.pop(name) for name in _FIRST if name in settings}
    display.show(display.settings_table({**first, **settings}))


def _short(part: str) -> str:
    """Return a part of a fingerprint for a table; twelve digits distinguish digests."""
    return part if len(part) <= 40 else f"{part[:12]}..."


@dbs.command("create")
@click.argument("db")
@click.option("--provider", "provider_id", help="Provider id. [default: the first one configured]")
@click.option("--model", "embedding_model", help="Embedding model. [default: the server's]")
@click.option("--mode", "search_mode", type=MODES, help="Search mode. [default: hybrid]")
@click.option("--language", help="Language, by ISO code or English name. [default: english]")
@click.option("--metric", type=METRICS, help="Distance metric. [default: cosine]")
@click.option("--ranker", type=RANKERS, help="Fusion of hybrid results. [default: weighted]")
@weights_option("Keyword weight of a field; repeatable. [default: content=1 title=2]")
@click.option("--rerank", help="Re-ranking: mmr, bm25, or JSON. [default: none]")
@click.option(
    "--min-confidence", type=click.FloatRange(0, 1), help="Minimum confidence. [default: 0]"
)
@click.option(
    "--expand",
    metavar="N|section",
    help="Neighbors of a chunk in a context, on each side (0-5), or its section. [default: 0]",
)
@chunk_size_option
@overlap_option
@split_on_option
@json_option
@on_client
async def create_db(
    client: Client,
    /,
    db: str,
    ranker: str | None,
    rerank: str | None,
    weights: dict[str, float] | None,
    expand: str | None,
    chunk_size_in_tokens: int | None,
    overlap_in_tokens: int | None,
    split_on: SplitOn | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Register a vector DB. Repeating it with the same settings changes nothing."""
    kind = None if ranker is None else {"type": ranker}
    given: JSON = {**settings, "ranker": kind, "field_weights": weights}
    given["rerank"] = typed(rerank) if rerank else None
    given["expand"] = None if expand is None else typed(expand)
    given["chunking"] = _chunking(chunk_size_in_tokens, overlap_in_tokens, split_on)
    body = {name: value for name, value in given.items() if value is not None}
    created = await client.register(db, body)
    display.answer(created, display.describe(created), as_json=as_json)


def _chunking(size: int | None, overlap: int | None, split_on: SplitOn | None) -> JSON | None:
    """Return the `chunking` to register; the overlap defaults to an eighth of the size."""
    if size is not None and overlap is None:
        overlap = size // 8
    given = {"chunk_size_in_tokens": size, "overlap_in_tokens": overlap, "split_on": split_on}
    return {name: value for name, value in given.items() if value is not None} or None


@dbs.command("change")
@click.argument("db")
@click.option("--language", help="Language, by ISO code or English name.")
@weights_option("Keyword weight of a field; repeatable, and all of them are replaced.")
@batch_option
@json_option
@click.pass_obj
def change_db(
    target: Target,
    /,
    db: str,
    language: str | None,
    weights: dict[str, float] | None,
    **options: Any,
) -> None:
    """Change the language or field weights of a vector DB.

    Embeds nothing again. Builds a second index and switches to it when it is complete; queries and
    inserts continue during the rebuild. Run the same command to resume an interrupted rebuild.
    """
    named = {"language": language, "field_weights": weights}
    given = {name: value for name, value in named.items() if value is not None}
    if not given:
        raise click.UsageError("Nothing to change: pass --language or --field-weight.")
    target.run(change, db, given, **options)


@dbs.command("delete")
@click.argument("db")
@yes_option
@on_client
async def delete_db(client: Client, db: str, yes: bool) -> None:
    """Delete a vector DB and all its chunks."""
    await client.vector_db(db)
    if not yes:
        click.confirm(f"Delete vector DB {db!r} with all its chunks?", abort=True)
    note = (await client.call("DELETE", vector_db_path(db))).get("note") or ""
    display.show(display.clean(f"{db} is deleted. {note}".strip()))


def vector_dbs_table(vector_dbs: Sequence[JSON]) -> RenderableType:
    """Return the table of vector DBs."""
    headers = (
        "vector DB#", "chunks>", "documents>", "provider#", "mode", "ranker", "language", "model#",
        "dimension>",
    )  # fmt: skip
    keys = (
        "identifier", "chunk_count", "document_count", "provider_id", "search_mode", "ranker",
        "language", "embedding_model", "embedding_dimension",
    )  # fmt: skip
    changed = (
        {**db, "ranker": (db.get("ranker") or {}).get("type", "")}
        | {key: display.count(db.get(key)) for key in ("chunk_count", "document_count")}
        for db in vector_dbs
    )
    return display.table(headers, ([db.get(key, "") for key in keys] for db in changed))
