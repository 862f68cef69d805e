"""`corral jobs`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from corral.server.cli import display
from corral.server.cli.failures import JSON, CommandError
from corral.server.cli.options import json_option, on_client

if TYPE_CHECKING:
    from corral.server.cli.client import Client

STATUSES = click.Choice(["queued", "running", "completed", "failed", "cancelled"])
LOOK_EVERY_SECONDS = 0.3


@click.group()
def jobs() -> None:
    """List, retry and cancel ingestion jobs."""


@jobs.command("list")
@click.argument("db")
@click.option("--status", type=STATUSES, help="Only jobs in this state.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=100,
    show_default=True,
    help="Maximum number of jobs.",
)
@json_option
@on_client
async def list_jobs(client: Client, db: str, status: str | None, limit: int, as_json: bool) -> None:
    """List jobs, newest first.

    Shows each job's progress, or why it failed.
    """
    await client.vector_db(db)
    rows = await client.jobs(db, status, limit)
    table = display.new_table("document#", "status", "progress", "message")
    for job in rows:
        row = (job["document_id"], job["status"], _progress(job), job["error_message"] or "")
        display.add_row(table, *row)
    display.answer(rows, table if rows else "There are no jobs.", as_json=as_json)


@jobs.command("retry")
@click.argument("db")
@json_option
@on_client
async def retry(client: Client, db: str, as_json: bool) -> None:
    """Queue failed and cancelled jobs again, and wait for them."""
    import asyncio

    await client.vector_db(db)
    ended = [*await client.jobs(db, "failed", 1000), *await client.jobs(db, "cancelled", 1000)]
    before = {job["job_id"]: job["version"] for job in ended}
    count = await client.change_jobs(db, "retry")
    if not as_json:
        display.show(display.clean(f"{db}: retrying {display.counted(count, 'job')}"))
    while count and await _unfinished(client, db):  # noqa: ASYNC110 - the server sends no event
        await asyncio.sleep(LOOK_EVERY_SECONDS)
    ended = await client.jobs(db, "failed", 1000)
    failed = [job for job in ended if before.get(job["job_id"], job["version"]) != job["version"]]
    if as_json:
        display.show_json({"retried": count, "failed": failed})
    for job in [] if as_json else failed:
        display.note(f"Failed: {job['document_id']}: {job['error_message']}")
    if failed:
        raise CommandError(f"Documents that failed: {len(failed)}.")


@jobs.command("cancel")
@click.argument("db")
@click.option("--yes", is_flag=True, help="Cancel without asking; only a terminal is asked.")
@json_option
@on_client
async def cancel(client: Client, db: str, yes: bool, as_json: bool) -> None:
    """Cancel all unfinished jobs. `corral jobs retry` queues them again."""
    await client.vector_db(db)
    if not yes and sys.stdin.isatty():
        click.confirm(f"Cancel all unfinished jobs of {db!r}?", abort=True)
    count = await client.change_jobs(db, "cancel")
    sentence = display.clean(f"{db}: cancelled {display.counted(count, 'job')}")
    display.answer({"cancelled": count}, sentence, as_json=as_json)


async def _unfinished(client: Client, db: str) -> bool:
    return any([await client.jobs(db, status, 1) for status in ("queued", "running")])


def _progress(job: JSON) -> str:
    progress = job["progress"]
    if job["status"] != "running":
        return display.counted(progress["embedded"], "chunk")
    return f"{display.counted(progress['embedded'], 'chunk')}, {progress['rate']:.0f}/s"
