"""What `corral jobs` does, on an open client."""

from __future__ import annotations

import asyncio

from corral.server.command_line import display
from corral.server.command_line.client import Client
from corral.server.command_line.ingest import LOOK_EVERY_SECONDS
from corral.server.command_line.transport import JSON, CommandError


async def list_jobs(
    client: Client, db: str, *, status: str | None, limit: int, as_json: bool
) -> None:
    """Print the jobs of a vector DB."""
    await client.vector_db(db)
    found = await client.jobs(db, status, limit)
    if as_json:
        display.show_json(found)
        return
    if not found:
        display.show("There are no jobs.")
        return
    table = display.new_table("document", "status", "progress", "message")
    for job in found:
        row = (job["document_id"], job["status"], _progress(job), job["error_message"] or "")
        display.add_row(table, *row)
    display.show(table)


async def retry(client: Client, db: str, *, as_json: bool) -> None:
    """Queue failed jobs again and say how they end."""
    await client.vector_db(db)
    ended = [*await client.jobs(db, "failed", 1000), *await client.jobs(db, "cancelled", 1000)]
    before = {job["job_id"]: job["version"] for job in ended}
    count = await client.change_jobs(db, "retry")
    if not as_json:
        display.show(display.clean(f"{db}: retrying {display.counted(count, 'job')}"))
    while count and await _unfinished(client, db):  # noqa: ASYNC110 - in a table
        await asyncio.sleep(LOOK_EVERY_SECONDS)
    ended = await client.jobs(db, "failed", 1000)
    failed = [job for job in ended if before.get(job["job_id"], job["version"]) != job["version"]]
    if as_json:
        display.show_json({"retried": count, "failed": failed})
    for job in [] if as_json else failed:
        display.note(f"Failed: {job['document_id']}: {job['error_message']}")
    if failed:
        raise CommandError(f"Documents that failed: {len(failed)}.")


async def cancel(client: Client, db: str, *, as_json: bool) -> None:
    """Cancel what is not finished."""
    await client.vector_db(db)
    count = await client.change_jobs(db, "cancel")
    if as_json:
        display.show_json({"cancelled": count})
        return
    display.show(display.clean(f"{db}: cancelled {display.counted(count, 'job')}"))


async def _unfinished(client: Client, db: str) -> bool:
    return any([await client.jobs(db, status, 1) for status in ("queued", "running")])


def _progress(job: JSON) -> str:
    progress = job["progress"]
    if job["status"] != "running":
        return display.counted(progress["embedded"], "chunk")
    return f"{display.counted(progress['embedded'], 'chunk')}, {progress['rate']:.0f}/s"
