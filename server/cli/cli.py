"""The command line.

`corral --help` must answer at once, so no module with commands imports anything heavier than click
before a command runs.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from corral.server.cli import display
from corral.server.cli.copies import copy, export_db, import_db, reembed
from corral.server.cli.dbs import dbs
from corral.server.cli.doctor import doctor
from corral.server.cli.documents import documents
from corral.server.cli.failures import JSON, CommandError
from corral.server.cli.group import Corral
from corral.server.cli.ingest import ingest
from corral.server.cli.jobs import jobs
from corral.server.cli.keys import keys
from corral.server.cli.options import EXISTING, INPUT, OUTPUT, Target, json_option, on_client
from corral.server.cli.querying import ask, query
from corral.server.cli.state import state
from corral.server.cli.sync import sync

if TYPE_CHECKING:
    from rich.console import RenderableType

    from corral.server.cli.client import Client


@click.group(
    cls=Corral,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--url", help="Address of a running server. [default: work on the data folder directly]"
)
@click.option("--home", type=EXISTING, help="Data folder. [default: $CORRAL_HOME or ~/.corral]")
@click.option(
    "--config", type=EXISTING, help="Configuration file. [default: run.yaml in the data folder]"
)
@click.option(
    "--key", envvar="CORRAL_API_KEY", help="API key for --url. [default: $CORRAL_API_KEY]"
)
@click.option(
    "--tenant", default="", help="Tenant whose vector DBs to use, without --url. [default: none]"
)
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
    """Vector, keyword and hybrid search over any vector database."""
    if url is not None and (home is not None or config is not None):
        raise click.UsageError("--url cannot be combined with --home or --config.")
    if url is None and ctx.get_parameter_source("key") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--key needs --url; without --url no key is needed.")
    if url is not None and tenant:
        raise click.UsageError(
            "--url cannot be combined with --tenant; the key determines the tenant."
        )
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal may lack characters that documents contain
            stream.reconfigure(errors="replace")
    logging.basicConfig(
        level=logging.INFO if verbose else logging.ERROR,
        format="%(levelname)s %(name)s: %(message)s",
    )
    # Set before numpy is imported. A matrix-vector product gains little from a second thread, and
    # loses much on a busy machine; each query has its own thread anyway.
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
    help="Processes that share the port and the queue of documents.",
)
@click.pass_obj
def serve(target: Target, host: str | None, port: int | None, workers: int) -> None:
    """Start the server."""
    target.local_only("serve")
    from corral.providers.base.config import data_home, load_config
    from corral.providers.base.importing import no_collection
    from corral.server.cli.connecting import check_home

    with no_collection():
        from corral.server import serving

    folder = target.home or data_home()
    check_home(folder)
    settings = load_config(target.config, folder)
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings.server = settings.server.model_copy(update=given)
    try:
        serving.serve(settings, folder, workers=workers, config_file=target.config)
    except SystemExit:  # the log has the reason
        raise CommandError(
            f"The server did not start on {settings.server.host}, port {settings.server.port}.",
            hint="If the port is taken, choose another with --port.",
        ) from None


@main.command()
@click.option(
    "--print-config",
    is_flag=False,
    flag_value="mcpservers",
    type=click.Choice(["mcpservers", "vscode", "http"]),
    help="Print what to paste into an agent's configuration, and exit. mcpservers: Claude Desktop, "
    "Cursor and most others; vscode: VS Code; http: agents that take an address: --url, the "
    "running server's, or as configured. "
    "[default: mcpservers]",
)
@click.pass_obj
def mcp(target: Target, print_config: str | None) -> None:
    """Serve the Model Context Protocol to desktop agents.

    Uses standard input and output, and opens the data folder in this process. A running server
    offers the same tools at /mcp.
    """
    if print_config != "http":
        target.local_only("mcp", of_a_tenant=True)
    from corral.server.cli.connecting import operator_of

    operator = operator_of(target.tenant)
    if print_config == "http" and operator.tenant:
        raise click.UsageError(
            "--print-config http cannot be combined with --tenant; the key determines the tenant."
        )
    if print_config:
        from corral.server.mcp import snippets

        where = target.config, target.home, operator.tenant, target.url
        made = snippets.snippet(print_config, *where)
        click.echo(made)
        return
    from corral.server.mcp import stdio

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
    """Register a vector DB, ingest files and ask a question.

    Runs on SQLite in a temporary data folder and leaves nothing behind.
    """
    target.local_only("demo")
    if target.home is not None:
        raise click.UsageError("demo uses a temporary data folder; leave --home out.")
    from corral.server.cli.demo import run_demo

    run_demo(target.config, path, questions, max_tokens)


@main.command()
@json_option
@on_client
async def providers(client: Client, as_json: bool) -> None:
    """Show provider types and configured providers.

    Shows the capabilities of each type and the health of each configured provider.
    """
    reply = await client.call("GET", "/v1/providers")
    if as_json:
        display.show_json(reply)
        return
    types, configured = reply.get("types") or [], reply.get("data") or []
    display.show(types_table(types), providers_table(configured))
    for plugin in reply.get("broken") or []:
        display.note(f"Broken plugin {plugin.get('name')}: {plugin.get('reason')}")


@main.command()
@click.argument("provider_type")
@click.option(
    "--provider", "--provider-id", "provider_id",
    help="Provider id; required if several of the type are configured.",
)  # fmt: skip
@click.option(
    "--json", "json_file", type=OUTPUT, metavar="FILE", help="Also write the matrix to this file."
)
@click.option(
    "--sample", "samples", nargs=2, type=(INPUT, str), multiple=True, metavar="FILE WORDS",
    help="For a reader: a file, and words of its text in their order, with / between two pages; "
    "repeatable.",
)  # fmt: skip
@click.pass_obj
def conformance(
    target: Target,
    provider_type: str,
    provider_id: str | None,
    json_file: Path | None,
    samples: tuple[tuple[Path, str], ...],
) -> None:
    """Test a provider against the contract, in scratch vector DBs.

    PROVIDER_TYPE is a type listed by `corral providers`, such as inline::sqlite, with its settings
    from run.yaml or its defaults. Does not touch your vector DBs. If the engine allows only one
    process, stop your server first. A reader, such as remote::tika, is tested on the files of
    --sample. Exits with 0 if the provider conforms, else 1.
    """
    target.local_only("conformance")
    from corral.server.cli import conformance as suite

    if not suite.conformance(
        target.config, target.home, provider_type, provider_id, json_file, samples
    ):
        raise SystemExit(1)


@main.command()
@json_option
@on_client
async def models(client: Client, as_json: bool) -> None:
    """List the embedding models."""
    rows = await client.models()
    display.answer(rows, models_table(rows), as_json=as_json)


@main.group()
def config() -> None:
    """Show the configuration, or its schema."""


@config.command("schema")
@click.pass_obj
def config_schema(target: Target) -> None:
    """Print the JSON Schema of run.yaml, for editors.

    Includes the settings of all installed providers. docs/configuration.md tells how to use it.
    """
    target.local_only("config schema")
    from corral.providers.stack.run_schema import editor_schema

    display.show_json(editor_schema())


@config.command("show")
@json_option
@click.pass_obj
def show_config(target: Target, as_json: bool) -> None:
    """Print all settings in force, with secrets masked."""
    target.local_only("config show")
    import yaml

    from corral.providers.base.config import CONFIG_NAME, data_home, load_config
    from corral.providers.stack.configured import ConfiguredProviders
    from corral.providers.stack.effective import effective_config
    from corral.providers.state.state import State

    folder = target.home or data_home()
    source = target.config or folder / CONFIG_NAME
    settings = load_config(target.config, folder)
    effective = effective_config(ConfiguredProviders(settings, folder))
    if as_json:
        display.show_json(effective)
        return
    shown = yaml.safe_dump(effective, sort_keys=False, allow_unicode=True)
    origin = str(source) if source.exists() else f"defaults ({source} does not exist)"
    tables = State(folder, settings.state.get_secret_value())
    installation = tables.recorded_installation() or "none yet; the first start makes its id"
    click.echo(f"# configuration: {origin}\n# data folder: {folder}")
    click.echo(f"# installation: {installation}\n{shown}", nl=False)


def models_table(models: Sequence[JSON]) -> RenderableType:
    """Return the table of embedding models."""
    rows = []
    for model in models:
        more = model.get("metadata") or {}
        cells = [more.get("embedding_dimension", ""), "yes" if more.get("default") else ""]
        rows.append([model.get("identifier", ""), model.get("provider_id", ""), *cells])
    return display.table(("model#", "provider#", "dimension>", "default"), rows)


def providers_table(providers: Sequence[JSON]) -> RenderableType:
    """Return the table of configured providers with their health."""
    rows = []
    for provider in providers:
        health = provider.get("health") or {}
        cells = [provider.get(key, "") for key in ("provider_id", "kind", "provider_type")]
        message = f"{health.get('status', '')} {health.get('message') or ''}".strip()
        rows.append([*cells, message])
    return display.table(("provider#", "kind", "type#", "health"), rows)


def types_table(types: Sequence[JSON]) -> RenderableType:
    """Return the table of provider types with their capabilities."""
    headers = ("type#", "kind", "vector", "keyword", "hybrid", "exact", "persistent", "dim.>")
    rows = []
    for entry in types:
        can = entry.get("capabilities") or {}
        cells = [entry.get(key, "") for key in ("provider_type", "kind")]
        cells += [can.get(leg, "") for leg in (*display.LEGS, "hybrid")]
        exact = [can.get(key) for key in ("exact", "persistent")]
        cells += ["" if value is None else "yes" if value else "no" for value in exact]
        rows.append([*cells, can.get("max_dimension", "")])
    return display.table(headers, rows)


for _command in (
    ingest,
    query,
    ask,
    copy,
    reembed,
    dbs,
    doctor,
    documents,
    jobs,
    keys,
    state,
    export_db,
    import_db,
    sync,
):
    main.add_command(_command)


if __name__ == "__main__":
    main()
