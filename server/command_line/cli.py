"""The command line: options and dispatch.

`corral --help` must answer at once, so nothing heavier than click is imported here; what a command
does is in a module that `Target.run` imports.
"""

from __future__ import annotations

import logging
import os
import sys
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
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
from corral.server.command_line.dbs import dbs
from corral.server.command_line.documents import documents
from corral.server.command_line.jobs import jobs
from corral.server.command_line.keys import keys
from corral.server.command_line.options import (
    MODES,
    Target,
    batch_option,
    encoding_of,
    json_option,
    named_option,
    number_or_auto,
    typed,
)
from corral.server.command_line.snapshots import export_db, import_db

# Literals, because the enumerations behind them cost start-up time; a test holds them equal.
CUTOFFS = click.Choice(["none", "gap"])
SYNTAXES = click.Choice(["plain", "web"])
EXISTING = click.Path(path_type=Path)


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
@click.option("--url", help="Server to talk to. [default: run in this process]")
@click.option("--home", type=EXISTING, help="Data folder. [default: $CORRAL_HOME or ~/.corral]")
@click.option(
    "--config", type=EXISTING, help="Configuration file. [default: run.yaml in the data folder]"
)
@click.option(
    "--key", envvar="CORRAL_API_KEY", help="API key for --url. [default: $CORRAL_API_KEY]"
)
@click.option("--tenant", default="", help="Tenant to work for, without --url. [default: none]")
@click.option("-v", "--verbose", is_flag=True, help="Log to stderr.")
@click.version_option(package_name="corral-rag", prog_name="corral")
@click.pass_context
def main(
    ctx: click.Context,
    url: str | None,
    home: Path | None,
    config: Path | None,
    key: str | None,
    tenant: str,
    verbose: bool,
) -> None:
    """One fence around every vector database: vector, keyword and hybrid retrieval."""
    if url is not None and (home is not None or config is not None):
        raise click.UsageError("--url cannot be combined with --home or --config.")
    if url is not None and tenant:
        raise click.UsageError("--url cannot be combined with --tenant: the key says whose it is.")
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
    ctx.obj = Target(url, home, config, key, tenant)


@main.command()
@click.option("--host", help="Address to listen on. [default: server.host, 127.0.0.1]")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port; 0 picks a free one. [default: 8321]"
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Processes that share the port; each takes from the same queue of documents.",
)
@click.pass_obj
def serve(target: Target, host: str | None, port: int | None, workers: int) -> None:
    """Start the server."""
    target.local_only("serve")
    from corral.server.command_line import commands  # noqa: PLC0415 - start-up time

    commands.serve(target.config, target.home, host, port, workers)


@main.command()
@click.option(
    "--print-config",
    type=click.Choice(["mcpservers", "vscode", "http"]),
    help="Print what to paste into an agent's configuration, and end. mcpservers: Claude Desktop, "
    "Cursor and most others; vscode: VS Code; http: those that take an address.",
)
@click.pass_obj
def mcp(target: Target, print_config: str | None) -> None:
    """Serve the Model Context Protocol over standard input and output, for desktop agents.

    It works on the data folder in this process. A running server has the same at /mcp.
    """
    target.local_only("mcp")
    if print_config:
        from corral.server.mcp import snippets  # noqa: PLC0415 - start-up time

        click.echo(snippets.snippet(print_config, target.config, target.home))
        return
    from corral.server.mcp import stdio  # noqa: PLC0415 - start-up time

    stdio.serve_stdio(target.config, target.home)


@main.command()
@click.option(
    "--path", type=EXISTING, help="Your own file or folder. [default: Corral's own documents]"
)
@click.option("--ask", "questions", multiple=True, help="Question to ask; repeatable.")
@click.option(
    "--max-tokens", type=int, default=700, show_default=True, help="Context budget in tokens."
)
@click.pass_obj
def demo(target: Target, path: Path | None, questions: tuple[str, ...], max_tokens: int) -> None:
    """Register, ingest and ask: the whole tour on real files.

    Runs on SQLite in a temporary data folder and leaves nothing behind.
    """
    target.local_only("demo")
    if target.home is not None:
        raise click.UsageError("demo uses a temporary data folder; leave --home out.")
    from corral.server.command_line.demo import run_demo  # noqa: PLC0415 - start-up time

    run_demo(target.config, path, questions, max_tokens)


@main.command()
@click.argument("db")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=EXISTING)
@click.option("--create", is_flag=True, help="Register DB with the defaults if it does not exist.")
@click.option(
    "--replace", is_flag=True, help="Replace documents with the same id from other folders."
)
@click.option(
    "--as-text",
    multiple=True,
    metavar="PATTERN",
    help="Also ingest files matching this as plain text, such as '*.log'; repeatable.",
)
@click.option(
    "--encoding",
    help="Encoding of text files. [default: UTF-8 or UTF-16 if valid, else Windows-1252]",
)
@click.option(
    "--include", multiple=True, metavar="GLOB", help="Only files matching this; repeatable."
)
@click.option("--exclude", multiple=True, metavar="GLOB", help="Without files matching it.")
@click.option(
    "--acl",
    multiple=True,
    metavar="TOKEN",
    help="Who may read it, such as group:sales; repeatable.",
)
@click.option("--hidden", is_flag=True, help="Also files and folders that begin with a dot.")
@click.option("--no-ignore", is_flag=True, help="Also what .gitignore names.")
@click.option("--sync", is_flag=True, help="Delete documents whose files are gone from the folder.")
@click.option("--watch", is_flag=True, help="Keep the vector DB in step until interrupted.")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@json_option
@click.pass_obj
def ingest(
    target: Target,
    /,
    db: str,
    paths: tuple[Path, ...],
    as_text: tuple[str, ...],
    encoding: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    acl: tuple[str, ...],
    hidden: bool,
    no_ignore: bool,
    yes: bool,
    **chosen: bool,
) -> None:
    """Ingest files and folders into a vector DB.

    Reads .md .markdown .txt .rst .html .htm .pdf .docx .py .csv .tsv .json .yaml .yml .xml, and
    searches folders recursively, without hidden files, what .gitignore names, and links that lead
    out of the folder. A file's document id is its path relative to the folder you name. Files above
    the server's limits (rag.document_limits and server.limits in run.yaml) fail before anything is
    sent.

    Running the command again goes on after an interruption, replaces changed files and skips
    unchanged ones. `corral jobs` lists what failed, and retries it. Globs are those of .gitignore.

    Invisible characters are removed, and every line or page break (\\r, \\v, \\f) becomes \\n.
    """
    from corral.server.command_line.files import ReadOptions  # noqa: PLC0415 - start-up time
    from corral.server.command_line.folders import Selection  # noqa: PLC0415 - start-up time

    if chosen["sync"] and not yes and not sys.stdin.isatty():
        raise click.UsageError("Not a terminal; pass --yes.")
    selection = Selection(include, exclude, hidden=hidden, ignored=no_ignore)
    options = ReadOptions(as_text, encoding_of(encoding), selection=selection, acl=acl)
    target.run("ingest_commands.ingest", db, paths, options=options, ask=not yes, **chosen)


@main.command()
@click.argument("db")
@click.argument("text")
@click.option("--mode", type=MODES, help="Search mode. [default: DB's own]")
@click.option(
    "--k",
    default="5",
    show_default=True,
    help="Number of hits, or auto: the square root of the number of chunks.",
)
@click.option("--ranker", help="Fusion: rrf, weighted, max, or JSON. [default: DB's own]")
@click.option("--rerank", help="Re-ranking: mmr, bm25, none, or JSON. [default: DB's own]")
@click.option(
    "--cutoff", type=CUTOFFS, help="Where to stop; gap: before the largest drop in score."
)
@click.option("--query-syntax", type=SYNTAXES, help='Query syntax; web: "exact phrase", -excluded.')
@click.option("--fuzzy", is_flag=True, default=None, help="Match misspelled words, too.")
@click.option(
    "--also", "queries", multiple=True, help="The same question in other words; repeatable."
)
@click.option(
    "-o",
    "--option",
    "others",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other query_config field, such as order=edges or expand=1; repeatable.",
)
@click.option("--max-tokens", type=int, help="Assemble a context within this many tokens.")
@click.option(
    "--threshold", type=float, default=0.0, show_default=True, help="Minimum score (0-1)."
)
@click.option("--min-confidence", type=float, help="Minimum confidence (0-1). [default: DB's own]")
@click.option("--explain", is_flag=True, help="Explain why each hit is there.")
@click.option("--json", "as_json", is_flag=True, help="Print the raw reply of the RAG tool.")
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
    """Search a vector DB and show the hits.

    --max-tokens also shows the assembled context, and only the hits that fit into it. Every option
    is a field of the RAG tool's query_config; docs/ describes each with an example.
    """
    asked: dict[str, Any] = {n: value for n, value in options.items() if value not in (None, ())}
    asked |= {"max_chunks": number_or_auto(k), "score_threshold": threshold}
    if max_tokens is not None:
        asked["max_tokens_in_context"] = max_tokens
    kinds = {"ranker": ranker, "rerank": rerank}
    asked |= {name: typed(value) for name, value in kinds.items() if value}
    asked |= dict(map(named_option, others))
    target.run("commands.query", db, text, asked, explain=explain, as_json=as_json)


@main.command()
@click.argument("source", metavar="SRC_DB")
@click.argument("target", metavar="DST_DB")
@click.option("--to", "provider_id", help="Provider of DST_DB. [default: SRC_DB's provider]")
@batch_option
@json_option
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

    Nothing is embedded again. Run the same command to resume an interrupted copy. At the end,
    Corral compares the chunks of both sides and their answers to sample queries.
    """
    target_.run(
        "db_commands.copy", source, target, provider_id=provider_id, batch=batch, as_json=as_json
    )


@main.command()
@click.argument("db")
@click.option("--model", help="Embedding model. [default: DB's own, as it is configured now]")
@click.option("--abandon", is_flag=True, help="Give up a rebuild that was begun.")
@batch_option
@json_option
@click.pass_obj
def reembed(
    target: Target, db: str, model: str | None, abandon: bool, batch: int | None, as_json: bool
) -> None:
    """Embed a vector DB again: with another model, or with one that has changed.

    A second index is built beside the first and takes its place when it is complete. Queries and
    inserts go on all the while. Run the same command to resume an interrupted one.
    """
    if abandon:
        target.run("rebuild_commands.abandon", db)
    else:
        target.run("rebuild_commands.reembed", db, model, batch=batch, as_json=as_json)


@main.command()
@json_option
@click.pass_obj
def providers(target: Target, as_json: bool) -> None:
    """Show provider types and configured providers.

    Types come with their capabilities, configured providers with their health.
    """
    target.run("commands.show_providers", as_json=as_json)


@main.command()
@click.argument("provider_type")
@click.option("--provider-id", help="Required if several providers of the type are configured.")
@click.option(
    "--json", "json_file", type=EXISTING, metavar="FILE", help="Also write the matrix to this file."
)
@click.pass_obj
def conformance(
    target: Target, provider_type: str, provider_id: str | None, json_file: Path | None
) -> None:
    """Test a provider against the contract, in scratch vector DBs.

    PROVIDER_TYPE is a type that `corral providers` lists, such as inline::sqlite, with its settings
    from run.yaml or its defaults. Your vector DBs are not touched. Stop any server that uses an
    engine limited to one process. Exits with 0 if the provider conforms, else 1.
    """
    target.local_only("conformance")
    from corral.server.command_line import conformance as suite  # noqa: PLC0415 - start-up time

    if not suite.conformance(target.config, target.home, provider_type, provider_id, json_file):
        raise SystemExit(1)


@main.command()
@json_option
@click.pass_obj
def models(target: Target, as_json: bool) -> None:
    """List the embedding models."""
    target.run("commands.list_models", as_json=as_json)


@main.group()
def config() -> None:
    """Show the configuration."""


@config.command("show")
@json_option
@click.pass_obj
def show_config(target: Target, as_json: bool) -> None:
    """Print the effective configuration: defaults filled in, secrets masked."""
    target.local_only("config show")
    from corral.server.command_line import commands  # noqa: PLC0415 - start-up time

    commands.show_config(target.config, target.home, as_json=as_json)


main.add_command(dbs)
main.add_command(documents)
main.add_command(jobs)
main.add_command(keys)
main.add_command(export_db)
main.add_command(import_db)


if __name__ == "__main__":
    main()
