"""The command line: options and dispatch. What the commands do is in `commands`, imported late.

`corral --help` has to answer at once, so nothing heavier than click is imported here.
"""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import click

from corral.api.errors import (
    ConfigError,
    Conflict,
    CorralError,
    InvalidRequest,
    MissingDependency,
    NotFound,
)
from corral.server.command_line.documents import documents
from corral.server.command_line.options import (
    as_json_option,
    encoding_of,
    field_weight,
    named_option,
    number_or_auto,
    typed,
)

# Literals, because the enumerations behind them cost start-up time; a test holds them equal.
MODES = click.Choice(["vector", "keyword", "hybrid"])
METRICS = click.Choice(["cosine", "l2", "dot"])
RANKERS = click.Choice(["rrf", "weighted", "max"])
CUTOFFS = click.Choice(["none", "gap"])
SYNTAXES = click.Choice(["plain", "web"])
EXISTING = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True)
class Target:
    """Where the commands go: a server's URL, or the app in process with its configuration."""

    url: str | None
    home: Path | None
    config: Path | None

    def local_only(self, command: str) -> None:
        """Refuse `--url` for a command that works on this machine."""
        if self.url is not None:
            raise click.UsageError(f"{command} works on this machine; it takes no --url.")


class _Failure(click.ClickException):
    """An error as the user sees it: a line that says what is wrong, a line that says what to do."""

    def __init__(self, message: str, hint: str, exit_code: int) -> None:
        super().__init__(message)
        self.hint = hint
        self.exit_code = exit_code  # type: ignore[misc]  # click declares it for the class

    def show(self, file: IO[Any] | None = None) -> None:
        """Print both to stderr."""
        click.echo(f"Error: {self.message}", file=file or sys.stderr)
        if self.hint:
            click.echo(f"Hint: {self.hint}", file=file or sys.stderr)


class _Corral(click.Group):
    """The group of all commands; turns expected errors into messages and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, those of other packages too."""
        return sorted({*super().list_commands(ctx), *_entry_points().names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command of this file, or load the one that an entry point names."""
        found = super().get_command(ctx, cmd_name)
        if found is not None or cmd_name not in _entry_points().names:
            return found
        loaded: click.Command = _entry_points()[cmd_name].load()
        return loaded

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except CorralError as error:
            raise _Failure(error.message, error.hint, _exit_code(error)) from error
        except BrokenPipeError:  # whoever read has seen enough; click ends without a word
            raise
        except OSError as error:
            raise _Failure(str(error), "", 1) from error


@cache
def _entry_points() -> EntryPoints:
    return entry_points(group="corral.commands")


def _exit_code(error: CorralError) -> int:
    """Return 2 where the input is to blame, 1 for every other failure."""
    given = getattr(error, "exit_code", None)
    if isinstance(given, int):
        return given
    if isinstance(error, MissingDependency):
        return 1
    return 2 if isinstance(error, InvalidRequest | NotFound | Conflict | ConfigError) else 1


@click.group(
    cls=_Corral,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--url", help="Talk to this server. Without it the same app runs in process.")
@click.option("--home", type=EXISTING, help="Data folder. [default: $CORRAL_HOME or ~/.corral]")
@click.option("--config", type=EXISTING, help="Configuration. [default: run.yaml in the folder]")
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr what is being done.")
@click.version_option(package_name="corral-rag", prog_name="corral")
@click.pass_context
def main(
    ctx: click.Context, url: str | None, home: Path | None, config: Path | None, verbose: bool
) -> None:
    """One fence around every vector database: retrieval by meaning, by words, and by both."""
    if url is not None and (home is not None or config is not None):
        raise click.UsageError("--home and --config are for this machine; --url is for another.")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal may lack characters that documents have
            stream.reconfigure(errors="replace")
    logging.basicConfig(
        level=logging.INFO if verbose else logging.ERROR,
        format="%(levelname)s %(name)s: %(message)s",
    )
    # Said before numpy is imported. A product of a matrix and a vector gains little from a second
    # thread, and loses much to it on a busy machine; each query has a thread of its own anyway.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    home = home.expanduser().absolute() if home else None
    ctx.obj = Target(url, home, config)


@main.command()
@click.option("--host", help="Address to listen on. [default: of the configuration, 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="0: a free one. [default: 8321]")
@click.pass_obj
def serve(target: Target, host: str | None, port: int | None) -> None:
    """Start the server."""
    target.local_only("serve")
    _commands().serve(target.config, target.home, host, port)


@main.command()
@click.option("--path", type=EXISTING, help="Your own folder or file. [default: the project's]")
@click.option("--ask", "questions", multiple=True, help="A question; may be repeated.")
@click.option("--max-tokens", type=int, default=700, show_default=True, help="Context budget.")
@click.pass_obj
def demo(target: Target, path: Path | None, questions: tuple[str, ...], max_tokens: int) -> None:
    """Show the whole way on real files: register, ingest, ask.

    On SQLite, in a temporary data folder.
    """
    target.local_only("demo")
    if target.home is not None:
        raise click.UsageError("demo makes a temporary data folder; it takes no --home.")
    from corral.server.command_line.demo import run_demo  # noqa: PLC0415 - start-up time

    run_demo(target.config, path, questions, max_tokens)


@main.command()
@click.argument("db")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=EXISTING)
@click.option("--create", is_flag=True, help="Register DB with the defaults where it is missing.")
@click.option("--replace", is_flag=True, help="Replace documents of the same id from other places.")
@click.option(
    "--as-text",
    multiple=True,
    metavar="PATTERN",
    help="Take files whose name matches as plain text too, as '*.log'; repeatable.",
)
@click.option(
    "--encoding",
    help="Encoding of text files. [default: UTF-8, UTF-16 where it shows, else Windows-1252]",
)
@as_json_option
@click.pass_obj
def ingest(
    target: Target,
    db: str,
    paths: tuple[Path, ...],
    create: bool,
    replace: bool,
    as_text: tuple[str, ...],
    encoding: str | None,
    as_json: bool,
) -> None:
    """Put files and folders into a vector DB.

    Takes .md .markdown .txt .rst .html .htm .pdf .docx .py .csv .tsv .json .yaml .yml .xml, folders
    recursively, without hidden files and links that lead out of them. A file's document id is its
    path relative to the folder that was named. The same files again replace themselves; unchanged
    ones are skipped. A file that is too large is refused before anything is sent
    (rag.document_limits and server.limits of the server's run.yaml).

    Text is stored without characters that a reader cannot see, and with \\n for every other line
    or page break (\\r, \\v, \\f).
    """
    from corral.server.command_line.files import Taking  # noqa: PLC0415 - start-up time

    taking = Taking(as_text, encoding_of(encoding))
    _run(
        target, "ingest", db, paths,
        create=create, as_json=as_json, replace=replace, taking=taking,
    )  # fmt: skip


@main.command()
@click.argument("db")
@click.argument("text")
@click.option("--mode", type=MODES, help="[default: as DB was registered]")
@click.option(
    "--k", default="5", show_default=True, help="Most hits; auto: the root of all chunks."
)
@click.option("--ranker", help="rrf, weighted or max, or JSON. [default: as DB was registered]")
@click.option("--rerank", help="mmr, bm25 or none, or JSON. [default: as DB was registered]")
@click.option("--cutoff", type=CUTOFFS, help="gap: stop before the largest drop of the score.")
@click.option("--query-syntax", type=SYNTAXES, help='web: "exact phrase", -excluded.')
@click.option("--fuzzy", is_flag=True, default=None, help="Find misspelled words too.")
@click.option("--also", "queries", multiple=True, help="The question in other words; repeatable.")
@click.option(
    "-o",
    "--option",
    "others",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other field of a query config, as order=edges or expand=1; repeatable.",
)
@click.option("--max-tokens", type=int, help="Assemble a context of at most so many tokens.")
@click.option("--threshold", type=float, default=0.0, show_default=True, help="Least score, 0..1.")
@click.option("--explain", is_flag=True, help="Say for each hit why it is there.")
@click.option("--json", "as_json", is_flag=True, help="Print the RAG tool's reply as it is.")
@click.pass_obj
def query(
    target: Target,
    /,
    db: str,
    text: str,
    k: str,
    ranker: str | None,
    rerank: str | None,
    others: tuple[str, ...],
    max_tokens: int | None,
    threshold: float,
    explain: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Ask a vector DB and show the hits.

    With --max-tokens the context is shown too, and the hits are those that fit into it. Every
    option is a field of the RAG tool's query config; see docs/ for each with an example.
    """
    asked: dict[str, Any] = {name: value for name, value in options.items() if value}
    asked |= {"max_chunks": number_or_auto(k), "score_threshold": threshold}
    if max_tokens is not None:
        asked["max_tokens_in_context"] = max_tokens
    kinds = {"ranker": ranker, "rerank": rerank}
    asked |= {name: typed(value) for name, value in kinds.items() if value}
    asked |= dict(map(named_option, others))
    _run(target, "query", db, text, asked, explain=explain, as_json=as_json)


@main.command()
@click.argument("source", metavar="SRC_DB")
@click.argument("target", metavar="DST_DB")
@click.option("--to", "provider_id", help="Where DST_DB is registered. [default: as SRC_DB]")
@click.option(
    "--batch",
    type=click.IntRange(1, 10_000),
    help="Chunks of a step. [default: a fiftieth of them, 500 to 10000]",
)
@as_json_option
@click.pass_obj
def copy(
    target_: Target,
    /,
    source: str,
    target: str,
    provider_id: str | None,
    batch: int | None,
    as_json: bool,
) -> None:
    """Copy a vector DB with its embeddings and settings, to any provider.

    Embeds nothing again. Interrupted, the same command goes on. At the end both sides are
    compared: their chunks, and their answers to a sample of queries.
    """
    _run(target_, "copy", source, target, provider_id=provider_id, batch=batch, as_json=as_json)


@main.group()
def dbs() -> None:
    """List, create, show, delete and prune vector DBs."""


@dbs.command("list")
@click.option("--orphans", is_flag=True, help="List data in the engines without a registration.")
@as_json_option
@click.pass_obj
def list_dbs(target: Target, orphans: bool, as_json: bool) -> None:
    """List the vector DBs with their chunks and documents."""
    if orphans:
        _run_on_orphans(target, "list_orphans", as_json=as_json)
    else:
        _run(target, "list_dbs", as_json=as_json)


@dbs.command("prune")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def prune(target: Target, yes: bool) -> None:
    """Delete the data in the engines that no registration holds.

    A process that is killed while it registers a vector DB leaves such data. It is shown first:
    `corral dbs list --orphans`. Where several Corrals share a server, each with its own data
    folder, the vector DBs of the others are shown, too: do not prune there.
    """
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("Nobody can be asked here; give --yes to delete.")
    _run_on_orphans(target, "prune", ask=not yes)


@dbs.command("show")
@click.argument("db")
@as_json_option
@click.pass_obj
def show_db(target: Target, db: str, as_json: bool) -> None:
    """Show one vector DB with all its settings, its chunks and documents."""
    _run(target, "show_db", db, as_json=as_json)


@dbs.command("create")
@click.argument("db")
@click.option("--provider", "provider_id", help="[default: the first that is configured]")
@click.option("--model", "embedding_model", help="[default: the server's]")
@click.option("--mode", "search_mode", type=MODES, help="[default: hybrid]")
@click.option("--language", help="ISO code or English name. [default: english]")
@click.option("--metric", type=METRICS, help="[default: cosine]")
@click.option("--ranker", type=RANKERS, help="How hybrid results are fused. [default: weighted]")
@click.option(
    "--field-weight",
    "weights",
    multiple=True,
    metavar="FIELD=WEIGHT",
    help="Keyword weight of a field; may be repeated. [default: content=1 title=2]",
)
@as_json_option
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
    """Register a vector DB named DB. The same settings again change nothing."""
    given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    if ranker is not None:
        given["ranker"] = {"type": ranker}
    if weights:
        given["field_weights"] = {"content": 1.0, **dict(map(field_weight, weights))}
    _run(target, "create_db", db, given, as_json=as_json)


@dbs.command("delete")
@click.argument("db")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete_db(target: Target, db: str, yes: bool) -> None:
    """Delete a vector DB with all its chunks."""
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("Nobody can be asked here; give --yes to delete.")
    _run(target, "delete_db", db, ask=not yes)


@main.command()
@as_json_option
@click.pass_obj
def providers(target: Target, as_json: bool) -> None:
    """Show provider types with capabilities, and the configured ones with health."""
    _run(target, "show_providers", as_json=as_json)


@main.command()
@click.argument("provider_type")
@click.option("--provider-id", help="Which one, where several of the type are configured.")
@click.option("--json", "json_file", type=EXISTING, metavar="FILE", help="Write the matrix there.")
@click.pass_obj
def conformance(
    target: Target, provider_type: str, provider_id: str | None, json_file: Path | None
) -> None:
    """Test a provider against the contract, in scratch vector DBs.

    PROVIDER_TYPE is one of `corral providers`, as inline::sqlite. It is taken as run.yaml has it,
    or with the type's defaults. Other vector DBs are not touched; an engine for one process at a
    time must not be in use by a server meanwhile. Exit code 0 where the provider conforms, else 1.
    """
    target.local_only("conformance")
    from corral.server.command_line import conformance as suite  # noqa: PLC0415 - start-up time

    if not suite.conformance(target.config, target.home, provider_type, provider_id, json_file):
        raise SystemExit(1)


@main.command()
@as_json_option
@click.pass_obj
def models(target: Target, as_json: bool) -> None:
    """List the embedding models."""
    _run(target, "list_models", as_json=as_json)


@main.group()
def config() -> None:
    """Show the configuration."""


@config.command("show")
@as_json_option
@click.pass_obj
def show_config(target: Target, as_json: bool) -> None:
    """Print the effective configuration as YAML, defaults filled in and secrets masked."""
    target.local_only("config show")
    _commands().show_config(target.config, target.home, as_json=as_json)


main.add_command(documents)


def _commands() -> ModuleType:
    from corral.server.command_line import commands  # noqa: PLC0415 - start-up time

    return commands


def _run(target: Target, name: str, *arguments: Any, **options: Any) -> None:
    """Run a command of `commands` with a client that is connected to the target."""
    commands = _commands()
    commands.run(
        target.url, target.config, target.home, getattr(commands, name), *arguments, **options
    )


def _run_on_orphans(target: Target, name: str, **options: Any) -> None:
    """Run a command of `orphan_commands` in the same way."""
    from corral.server.command_line import orphan_commands  # noqa: PLC0415 - start-up time

    command = getattr(orphan_commands, name)
    _commands().run(target.url, target.config, target.home, command, **options)


if __name__ == "__main__":
    main()
