"""`corral sync`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from corral.server.cli.options import Target, json_option

if TYPE_CHECKING:
    from corral.server.cli.client import Client

LOOK_EVERY_SECONDS = 0.3


@click.command()
@click.argument("db")
@click.argument("source")
@click.option("--full", is_flag=True, help="Read documents again that have not changed.")
@click.option("--prefix", default="", help="Put before the document ids, such as handbook/.")
@click.option(
    "--replace", is_flag=True, help="Replace documents with the same id from other places."
)
@json_option
@click.pass_obj
def sync(
    target: Target, /, db: str, source: str, full: bool, prefix: str, replace: bool, as_json: bool
) -> None:
    """Bring a vector DB in step with a source.

    SOURCE is the name of a sync in run.yaml, or on this machine a folder, s3://BUCKET/PREFIX,
    gs://..., az://..., git+URL, feed+URL, or the address of a web site or sitemap. New and changed
    documents are ingested, and documents that the source no longer has are deleted; unchanged ones
    are not read. If a source cannot be listed completely, nothing is deleted. See docs/sources.md.
    """
    if target.url is not None:
        if prefix or replace:
            raise click.UsageError("--prefix and --replace are in run.yaml of the server.")
        target.run(_sync, db, source, full=full, as_json=as_json)
        return
    import asyncio

    asyncio.run(_here(target, db, source, {"prefix": prefix, "replace": replace}, full, as_json))


async def _here(
    target: Target, db: str, source: str, settings: dict[str, Any], full: bool, as_json: bool
) -> None:
    """Run a sync from run.yaml, or of a source given on the command line, in this process."""
    from corral.providers.base.config import data_home, load_config
    from corral.providers.base.sync_config import SyncEntry
    from corral.server.cli.connecting import in_process

    home = target.home or data_home()
    config = load_config(target.config, home)
    if source not in {entry.name for entry in config.sync}:
        entry = SyncEntry(
            name=source[:255],
            vector_db_id=db,
            source=source_settings(source),
            tenant=target.tenant,
            **settings,
        )
        config = config.model_copy(update={"sync": [*config.sync, entry]})
        source = entry.name
    elif any(settings.values()):
        raise click.UsageError(f"--prefix and --replace of {source!r} are in run.yaml.")
    async with in_process(config, home, target.tenant) as client:
        await _sync(client, db, source, full=full, as_json=as_json)


def source_settings(source: str) -> dict[str, Any]:
    """Return the settings of a source given on the command line.

    Raises:
        CommandError: It is neither an address nor a folder.
    """
    from corral.server.cli.failures import BAD_INPUT, CommandError

    scheme = source.partition("://")[0]
    if scheme in {"s3", "gs", "az", "abfs", "abfss"}:
        return {"type": "objects", "url": source}
    for kind in ("git", "feed"):
        if source.startswith(f"{kind}+"):
            return {"type": kind, "url": source.removeprefix(f"{kind}+")}
    if scheme in {"http", "https"}:
        return {"type": "site", "url": source}
    if Path(source).is_dir():
        return {"type": "folder", "path": str(Path(source).absolute())}
    raise CommandError(
        f"{source} is no folder, no address of a source, and no name of a sync in run.yaml.",
        hint="Write git+URL for a repository and feed+URL for a feed; see docs/sources.md.",
        exit_code=BAD_INPUT,
    )


async def _sync(client: Client, db: str, source: str, *, full: bool, as_json: bool) -> None:
    """Start a run, follow it to its end, and print the result."""
    import asyncio

    from corral.server.cli import display
    from corral.server.cli.failures import CommandError
    from corral.server.cli.paths import vector_db_path

    path = f"{vector_db_path(db)}/sync"
    state = await client.call("POST", path, {"source": source, "full": full})
    while state["status"] == "running":
        await asyncio.sleep(LOOK_EVERY_SECONDS)
        state = await client.call("POST", f"{path}/state", {"source": source})
    if as_json:
        display.show_json({"vector_db_id": db, "source": source, **state})
    else:
        for each in state["skips"]:
            display.note(f"Skipped ({each['reason']}): {each['name']}")
        for each in state["failures"]:
            display.note(f"Failed: {each['name']}: {each['reason']}")
        for problem in state["problems"]:
            display.note(f"Note: {problem}")
        stored = display.counted(state["stored"], "document")
        counts = f"{state['deleted']:,} deleted, {state['unchanged']:,} unchanged"
        display.show(display.clean(f"{db}: {stored} stored, {counts} in {state['seconds']:.1f} s"))
    if state["status"] == "failed":
        raise CommandError(f"The sync failed: {state['error']}")
    if state["failed"]:
        raise CommandError(f"Documents that were not ingested: {state['failed']}.")
    if state["problems"]:
        raise CommandError("The source could not be listed completely.")
