"""`corral jobs`: options and dispatch. Imports nothing heavier than click."""

from __future__ import annotations

import click

from corral.server.command_line.options import Target, json_option

STATUSES = click.Choice(["queued", "running", "completed", "failed", "cancelled"])


@click.group()
def jobs() -> None:
    """List, retry and cancel the ingest of documents."""


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
@click.pass_obj
def list_jobs(target: Target, db: str, status: str | None, limit: int, as_json: bool) -> None:
    """List jobs, the newest first.

    Each comes with its progress, or why it failed.
    """
    target.run("job_commands.list_jobs", db, status=status, limit=limit, as_json=as_json)


@jobs.command("retry")
@click.argument("db")
@json_option
@click.pass_obj
def retry(target: Target, db: str, as_json: bool) -> None:
    """Queue failed and cancelled jobs again, and wait for them."""
    target.run("job_commands.retry", db, as_json=as_json)


@jobs.command("cancel")
@click.argument("db")
@json_option
@click.pass_obj
def cancel(target: Target, db: str, as_json: bool) -> None:
    """Cancel all jobs that are not finished."""
    target.run("job_commands.cancel", db, as_json=as_json)
