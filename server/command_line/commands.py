"""What the commands of the command line do, each on an open client."""

from __future__ import annotations

from pathlib import Path

import click
import yaml

from corral.api.provider import Api
from corral.providers.config import CONFIG_NAME, RunConfig, data_home, load_config
from corral.providers.configured import ConfiguredProviders
from corral.providers.importing import no_collection
from corral.providers.registry import check_config
from corral.server.command_line import answers, display
from corral.server.command_line.client import Client
from corral.server.command_line.connecting import check_home
from corral.server.command_line.transport import JSON, CommandError

NO_BUDGET = 1_000_000
"""The largest budget that the wire takes: no hit is dropped for want of room."""


def serve(
    config: Path | None, home: Path | None, host: str | None, port: int | None, workers: int
) -> None:
    """Serve until interrupted; host and port given here win over the configuration's."""
    with no_collection():
        from corral.server.serving import serve as serve_app  # noqa: PLC0415 - fastapi is heavy

    folder = home or data_home()
    check_home(folder)
    settings = load_config(config, folder)
    given = {"host": host, "port": port}
    settings.server = settings.server.model_copy(
        update={name: value for name, value in given.items() if value is not None}
    )
    try:
        serve_app(settings, folder, workers=workers, config_file=config)
    except SystemExit:  # the log says why
        raise CommandError(
            f"The server did not start on {settings.server.host}, port {settings.server.port}.",
            hint="If the port is taken, choose another with --port.",
        ) from None


async def query(
    client: Client,
    db: str,
    text: str,
    options: JSON,
    *,
    explain: bool,
    as_json: bool,
) -> None:
    """Ask the RAG tool and print the hits, the context where a budget is given, or raw JSON.

    Args:
        client: Where to ask.
        db: The vector DB.
        text: The question.
        options: Fields of the query config.
        explain: Whether to print why each hit is there, and what each step did.
        as_json: Whether to print the reply instead.
    """
    reply = await client.ask(
        db, text, {"max_tokens_in_context": NO_BUDGET, **options, "explain": True}
    )
    if as_json:
        display.show_json(reply)
        return
    show_reply(reply, with_context="max_tokens_in_context" in options, explain=explain)


def show_reply(
    reply: JSON, *, with_context: bool, explain: bool = False, texts: bool = True
) -> None:
    """Print a RAG reply: the context where asked for, the hits, and why they are there.

    Args:
        reply: The reply, asked for with `explain: true`.
        with_context: Whether to print the context.
        explain: Whether to print each leg's raw score, its contribution and the matched terms.
        texts: Whether the hits are shown with their first words.
    """
    hits, told = answers.hit_rows(reply), reply.get("metadata") or {}
    if hits:
        parts = [answers.context(reply)] if with_context else []
        parts.append(answers.hits_table(hits, texts=texts))
        if explain:
            weights = answers.weights_table(hits)
            parts += [answers.why_table(hits), *([weights] if weights else [])]
    else:
        parts = [display.clean(told.get("note") or _nothing(told))]
    if told.get("confidence") is not None and (hits or told.get("reason")):
        parts.append(f"Confidence: {told['confidence']:.2f}")
    if explain:
        parts.append(answers.steps_table(reply))
    display.show(*parts)
    for note in told.get("notes") or ():
        display.show(display.clean(f"Note: {note}"))


def _nothing(told: JSON) -> str:
    if told.get("reason") == "nothing_relevant":
        return "Nothing relevant: the confidence is below min_confidence."
    return "Nothing found."


async def show_providers(client: Client, *, as_json: bool) -> None:
    """Print the provider types with capabilities, and the configured providers with health."""
    reply = await client.providers()
    if as_json:
        display.show_json(reply)
        return
    types, configured = reply.get("types") or [], reply.get("data") or []
    display.show(display.types_table(types), display.providers_table(configured))
    for plugin in reply.get("broken") or []:
        display.note(f"Broken plugin {plugin.get('name')}: {plugin.get('reason')}")


async def list_models(client: Client, *, as_json: bool) -> None:
    """Print the table of embedding models."""
    models = await client.models()
    if as_json:
        display.show_json(models)
    else:
        display.show(display.models_table(models))


def show_config(config: Path | None, home: Path | None, *, as_json: bool) -> None:
    """Print the effective configuration: as YAML with where it is from, or as JSON."""
    folder = home or data_home()
    source = config or folder / CONFIG_NAME
    settings = load_config(config, folder)
    if as_json:
        display.show_json(_effective(settings, folder))
        return
    shown = yaml.safe_dump(_effective(settings, folder), sort_keys=False, allow_unicode=True)
    found = str(source) if source.exists() else f"defaults ({source} does not exist)"
    click.echo(f"# configuration: {found}\n# data folder: {folder}\n{shown}", nl=False)


def _effective(settings: RunConfig, folder: Path) -> JSON:
    """Return the configuration as it is in force, its secrets masked.

    Each provider has its own defaults, and the default model is one that is served.
    """
    configured = ConfiguredProviders(settings, folder)
    dumped = settings.model_dump(mode="json")
    for api in Api:
        for shown, entry in zip(dumped["providers"][api], settings.providers.of(api), strict=True):
            shown["config"] = check_config(api, entry).model_dump(mode="json")
    return {**dumped, "default_embedding_model": configured.default_model()}
