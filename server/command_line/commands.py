"""`corral serve` and `corral config show`, on this machine."""

from __future__ import annotations

from pathlib import Path

import click
import yaml

from corral.api.provider import Api
from corral.providers.config import CONFIG_NAME, RunConfig, data_home, load_config
from corral.providers.configured import ConfiguredProviders
from corral.providers.importing import no_collection
from corral.providers.registry import check_config
from corral.server.command_line import display
from corral.server.command_line.connecting import check_home
from corral.server.command_line.failures import JSON, CommandError


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
