"""The command line: options and dispatch.

`corral --help` must answer at once, so nothing heavier than click is imported here; what a command
does is in a module that `Target.run` imports.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import click
from click.core import ParameterSource

from corral.server.command_line.dbs import dbs
from corral.server.command_line.documents import documents
from corral.server.command_line.group import Corral
from corral.server.command_line.ingesting import ingest
from corral.server.command_line.jobs import jobs
from corral.server.command_line.keys import keys
from corral.server.command_line.options import EXISTING, OUTPUT, Target, batch_option, json_option
from corral.server.command_line.querying import query
from corral.server.command_line.snapshots import export_db, import_db


@click.group(
    cls=Corral,
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
    if url is None and ctx.get_parameter_source("key") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--key is for --url; in this process no key is needed.")
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
    is_flag=False,
    flag_value="mcpservers",
    type=click.Choice(["mcpservers", "vscode", "http"]),
    help="Print what to paste into an agent's configuration, and exit. mcpservers: Claude Desktop, "
    "Cursor and most others; vscode: VS Code; http: agents that take an address. "
    "[default: mcpservers]",
)
@click.pass_obj
def mcp(target: Target, print_config: str | None) -> None:
    """Serve the Model Context Protocol to desktop agents.

    It speaks over standard input and output, and works on the data folder in this process. A
    running server has the same at /mcp.
    """
    target.local_only("mcp", of_a_tenant=True)
    from corral.server.command_line.connecting import operator_of  # noqa: PLC0415 - start-up time

    operator = operator_of(target.tenant)
    if print_config == "http" and operator.tenant:
        raise click.UsageError(
            "--print-config http cannot be combined with --tenant: the key says whose it is."
        )
    if print_config:
        from corral.server.mcp import snippets  # noqa: PLC0415 - start-up time

        made = snippets.snippet(print_config, target.config, target.home, operator.tenant)
        click.echo(made)
        return
    from corral.server.mcp import stdio  # noqa: PLC0415 - start-up time

    stdio.serve_stdio(target.config, target.home, operator)


@main.command()
@click.option(
    "--path", type=EXISTING, help="Your own file or folder. [default: Corral's own documents]"
)
@click.option("--ask", "questions", multiple=True, help="Question to ask; repeatable.")
@click.option(
    "--max-tokens",
    type=click.IntRange(1),
    default=700,
    show_default=True,
    help="Context budget in tokens.",
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
@click.argument("source", metavar="SRC_DB")
@click.argument("target", metavar="DST_DB")
@click.option(
    "--provider", "--to", "provider_id", help="Provider of DST_DB. [default: SRC_DB's provider]"
)
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
    """Copy a vector DB, embeddings and all, to any provider.

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
    """Embed a vector DB again, with the same or another model.

    A second index is built beside the first and takes its place when it is complete. Queries and
    inserts go on all the while. Run the same command to resume an interrupted one.
    """
    if abandon:
        if model is not None or batch is not None:
            raise click.UsageError("--abandon cannot be combined with --model or --batch.")
        target.run("rebuild_commands.abandon", db, as_json=as_json)
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
@click.option(
    "--provider", "--provider-id", "provider_id",
    help="Provider id; required if several of the type are configured.",
)  # fmt: skip
@click.option(
    "--json", "json_file", type=OUTPUT, metavar="FILE", help="Also write the matrix to this file."
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
    """Print the configuration in force, secrets masked."""
    target.local_only("config show")
    from corral.server.command_line import commands  # noqa: PLC0415 - start-up time

    commands.show_config(target.config, target.home, as_json=as_json)


main.add_command(ingest)
main.add_command(query)
main.add_command(dbs)
main.add_command(documents)
main.add_command(jobs)
main.add_command(keys)
main.add_command(export_db)
main.add_command(import_db)


if __name__ == "__main__":
    main()
