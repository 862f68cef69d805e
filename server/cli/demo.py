"""`corral demo`: the whole pipeline on real files, in one command and on a new machine.

It works in a temporary data folder, so it disturbs no data, leaves nothing behind and shows
the same each time.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from importlib.metadata import metadata, version
from pathlib import Path

import click
from rich.text import Text

from corral.api.confidence import EVEN_ODDS
from corral.providers.base.config import RunConfig, load_config
from corral.providers.ingestion.read.detecting import MARKDOWN
from corral.server import DISTRIBUTION
from corral.server.cli import display
from corral.server.cli.client import Client
from corral.server.cli.connecting import in_process
from corral.server.cli.failures import BAD_INPUT, JSON, CommandError
from corral.server.cli.files import Report, SourceFile, collect
from corral.server.cli.ingesting import ingest_files, print_problems, summary
from corral.server.cli.progress import ingest_bars
from corral.server.cli.querying import write_answer

PROJECT = Path(__file__).resolve().parents[2]
"""The folder of the RFCs: in the checkout, or in the installed package `corral`."""

VECTOR_DB = "demo"
QUESTION = "Why does a score threshold of 0.1 empty every hybrid result on other servers?"
UNANSWERED = "How long should a sourdough loaf rest before it is baked?"
"""A question that the project's files do not answer."""
MODES = ("vector", "keyword", "hybrid")
HITS = 5
COMPARED = 20
"""Hits of each mode in the comparison; several may be from one document."""


def run_demo(
    config: Path | None, path: Path | None, questions: Sequence[str], max_tokens: int
) -> None:
    """Run the demo and print its steps.

    Args:
        config: The run.yaml to use; None for the defaults, even if the data folder has one.
        path: A file or folder; None for the project's README and RFCs.
        questions: The questions; if empty, one that the RFCs answer.
        max_tokens: Context budget.

    Raises:
        CommandError: There is nothing to ingest, the user's own files come without a question, or a
            step failed.
    """
    if path is not None and not questions:
        raise CommandError(
            "--path needs a question.",
            hint="Add: --ask 'QUESTION'",
            exit_code=BAD_INPUT,
        )
    if not all(map(str.strip, questions)):
        raise CommandError("--ask must not be empty.", exit_code=BAD_INPUT)
    with tempfile.TemporaryDirectory(prefix="corral-demo-") as folder:
        report = Report()
        files = collect([path], report) if path else _project_files(Path(folder, "project"))
        if not files:
            raise CommandError(f"There is nothing to ingest in {path}.", exit_code=BAD_INPUT)
        settings = load_config(config) if config else RunConfig()
        settings.state = RunConfig().state  # a demo leaves nothing behind
        home, to_ask = Path(folder, "home"), list(questions) or [QUESTION]
        vain = None if path or questions else UNANSWERED
        asyncio.run(_show(settings, home, files, report, to_ask, max_tokens, vain))


async def _show(
    settings: RunConfig,
    home: Path,
    files: Sequence[SourceFile],
    report: Report,
    questions: Sequence[str],
    max_tokens: int,
    vain: str | None,
) -> None:
    display.show(f"Corral {version(DISTRIBUTION)}: one fence around every vector database")
    click.echo()
    async with in_process(settings, home) as client:
        vector_db = await client.register(VECTOR_DB, {"search_mode": "hybrid"})
        display.show(_step("Registered", display.describe(vector_db)))
        with ingest_bars(len(files), sum(file.size for file in files)) as bars:
            await ingest_files(client, vector_db, files, report, bars)
        print_problems(report)
        if not report.documents:
            raise CommandError("No document could be ingested.")
        display.show(_step("Ingested", summary(report)))
        for question in questions:
            await _ask(client, question, max_tokens)
            click.echo()
            display.show(_step("Answered", "by sentences of the sources, without a language model"))
            click.echo()
            pieces: list[str] = []
            body: JSON = {"model": f"corral/{VECTOR_DB}", "input": question, "store": False}
            await write_answer(client, body, pieces.append)
            display.show("".join(pieces))
            click.echo()
        if vain is not None:
            await _ask_in_vain(client, vain)
            click.echo()
    display.show(_next_commands())


async def _ask(client: Client, question: str, max_tokens: int) -> None:
    """Ask a question; print its context, its hits, and the best documents of each mode."""
    display.show(_step("Asked", question))
    click.echo()
    budgeted = {"max_chunks": HITS, "max_tokens_in_context": max_tokens, "explain": True}
    reply = await client.ask(VECTOR_DB, question, budgeted)
    display.show_reply(reply, with_context=True, texts=False)
    first = {mode: await _documents(client, question, mode) for mode in MODES}
    click.echo()
    display.show("The documents that each search mode puts first:", display.modes_table(first))


async def _ask_in_vain(client: Client, question: str) -> None:
    """Ask a question without an answer: with a minimum confidence, the context stays empty."""
    display.show(_step("Asked", f"{question} (min_confidence {EVEN_ODDS:g})"))
    click.echo()
    config: JSON = {"max_chunks": HITS, "min_confidence": EVEN_ODDS, "explain": True}
    display.show_reply(
        await client.ask(VECTOR_DB, question, config), with_context=True, texts=False
    )


async def _documents(client: Client, question: str, mode: str) -> list[str]:
    """Return the documents of a mode's hits, best first."""
    config: JSON = {"mode": mode, "max_chunks": COMPARED, "max_tokens_in_context": 1_000_000}
    reply = await client.ask(VECTOR_DB, question, config)
    return [str(document) for document in reply["metadata"].get("filenames", [])]


def _project_files(into: Path) -> list[SourceFile]:
    """Write the project's README and rfcs into a folder, and return them."""
    texts = {"README.md": readme()}
    for path in sorted((PROJECT / "rfcs").glob("*.md")):
        texts[f"rfcs/{path.name}"] = path.read_text(encoding="utf-8")
    files = []
    for name, text in texts.items():
        copy = into / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, encoding="utf-8")
        files.append(SourceFile(copy, name, name, copy.stat().st_size, MARKDOWN))
    return files


def readme(project: Path = PROJECT) -> str:
    """Return the README from the checkout, or from the installed package's metadata."""
    path = project / "README.md"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    return str(metadata(DISTRIBUTION).json["description"])


def _step(what: str, text: str) -> Text:
    return Text.assemble((f"{what:<12}", "bold"), display.clean(text))


def _next_commands() -> Text:
    commands = {
        "corral ingest notes PATH --create": "your own files, in a vector DB named notes",
        'corral ask notes "QUESTION"': "an answer with its sources",
        'corral query notes "QUESTION" --explain': "the hits, and why each is there",
        "corral serve": "the same over HTTP; see http://127.0.0.1:8321/docs",
    }
    shown = {display.as_run(command): purpose for command, purpose in commands.items()}
    width = max(map(len, shown)) + 2
    lines = [f"  {command:<{width}}{purpose}" for command, purpose in shown.items()]
    return Text("\n".join(["Next:", *lines]))
