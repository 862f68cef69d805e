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
        display.show("No jobs.")
        return
    table = display.new_table("document", "status", "progress", "message")
    for job in found:
        row = (job["document_id"], job["status"], _progress(job), job["error_message"] or "")
        display.add_row(table, *row)
    display.show(table)


async def retry(client: Client, db: str, *, as_json: bool) -> None:
    """Queue failed jobs again and say how they end."""
    await client.vector_db(db)
    tried = {job["job_id"] for job in await client.jobs(db, "failed", 1000)}
    tried |= {job["job_id"] for job in await client.jobs(db, "cancelled", 1000)}
    count = await client.change_jobs(db, "retry")
    if not as_json:
        display.show(f"{db}: {count} jobs are tried again")
    while count and await _unfinished(client, db):  # noqa: ASYNC110 - in a table
        await asyncio.sleep(LOOK_EVERY_SECONDS)
    failed = [job for job in await client.jobs(db, "failed", 1000) if job["job_id"] in tried]
    if as_json:
        display.show_json({"retried": count, "failed": failed})
    for job in [] if as_json else failed:
        display.show(display.clean(f"Failed: {job['document_id']}: {job['error_message']}"))
    if failed:
        raise CommandError(f"Documents that failed: {len(failed)}.")


async def cancel(client: Client, db: str, *, as_json: bool) -> None:
    """Cancel what is not finished."""
    await client.vector_db(db)
    count = await client.change_jobs(db, "cancel")
    if as_json:
        display.show_json({"cancelled": count})
        return
    display.show(f"{db}: {count} jobs cancelled")


async def _unfinished(client: Client, db: str) -> bool:
    return any([await client.jobs(db, status, 1) for status in ("queued", "running")])


def _progress(job: JSON) -> str:
    progress = job["progress"]
    if job["status"] != "running":
        return f"{progress['embedded']} chunks"
    return f"{progress['embedded']} chunks, {progress['rate']:.0f}/s"
