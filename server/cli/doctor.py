"""`corral doctor`: checks the machine, the configuration and the engines, and changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from corral.api.errors import CorralError
from corral.server.cli import display
from corral.server.cli.options import Target, json_option

if TYPE_CHECKING:
    from corral.providers.base.config import RunConfig
    from corral.providers.stack.configured import ConfiguredProviders, ProviderStatus

MIN_FREE_GIB = 2.0
"""Free space below which the check of the data folder warns."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: what was checked, its state, and what to do if it is not OK."""

    check: str
    status: Literal["OK", "warning", "problem"]
    message: str
    hint: str = ""


@click.command()
@json_option
@click.pass_obj
def doctor(target: Target, as_json: bool) -> None:
    """Check this machine, the configuration and its engines.

    Prints what is OK, what is a warning, and what is a problem with what to do about it. Loads the
    in-process models, which checks their digests, but fetches none, and changes no data. Exits
    with 1 if there is a problem.
    """
    target.local_only("doctor")
    import asyncio

    from corral.providers.base.config import data_home

    folder = target.home or data_home()
    findings = asyncio.run(_examine(folder, target.config))
    if as_json:
        display.show_json([asdict(finding) for finding in findings])
    else:
        rows = [(one.status, one.check, f"{one.message} {one.hint}".strip()) for one in findings]
        display.show(display.table(("state", "check#", "result"), rows))
    if any(finding.status == "problem" for finding in findings):
        raise SystemExit(1)


async def _examine(folder: Path, file: Path | None) -> list[Finding]:
    """Return the results; the engines are checked if the machine and the configuration are OK."""
    from corral.providers.base.config import CONFIG_NAME, load_config
    from corral.providers.stack.configured import ConfiguredProviders
    from corral.providers.stack.host import check_shared

    findings = [_python(), _data_folder(folder), *_sqlite()]
    if any(finding.status == "problem" for finding in findings):
        return findings
    source = file or folder / CONFIG_NAME
    try:
        config = load_config(file, folder)
        check_shared(config)
        configured = ConfiguredProviders(config, folder)
    except CorralError as error:
        return [*findings, _problem("configuration", error)]
    origin = str(source) if source.exists() else f"defaults; {source} does not exist"
    findings.append(Finding("configuration", "OK", origin))
    findings += _plugins()
    try:
        statuses = await configured.providers()
        findings += [_health(status, config) for status in statuses]
        findings += [finding async for finding in _models(configured, statuses)]
    finally:
        await configured.close()
    findings.append(_state(folder, config))
    findings.append(await _files(folder, config))
    findings.append(_port(config.server.host, config.server.port, folder))
    return findings


def _problem(check: str, error: CorralError) -> Finding:
    return Finding(check, "problem", error.message, error.hint)


def _python() -> Finding:
    import platform
    from importlib import metadata

    from corral.server import DISTRIBUTION

    here = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    message = f"{here}, {DISTRIBUTION} {metadata.version(DISTRIBUTION)}"
    listed = metadata.metadata(DISTRIBUTION).get_all("Classifier") or []
    if f"Programming Language :: Python :: {'.'.join(here.split('.')[:2])}" in listed:
        return Finding("Python", "OK", message)
    return Finding("Python", "warning", message, "Corral is not tested on this version.")


def _data_folder(folder: Path) -> Finding:
    import shutil

    from corral.providers.vector_io.kit.folders import folder_health

    if folder_health(folder).status != "OK":
        hint = "Choose another with --home or CORRAL_HOME."
        return Finding("data folder", "problem", f"{folder} cannot be written to.", hint)
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free / 2**30
    message = f"{folder}, {free:,.1f} GiB free"
    if free < MIN_FREE_GIB:
        hint = "Free some space: a full disk stops writes."
        return Finding("data folder", "warning", message, hint)
    return Finding("data folder", "OK", message)


def _sqlite() -> Iterator[Finding]:
    import apsw
    import sqlite_vec

    if "ENABLE_FTS5" not in apsw.compile_options:
        hint = "Reinstall apsw from its wheel: pip install --force-reinstall apsw"
        yield Finding("SQLite", "problem", f"{apsw.sqlite_lib_version()} without FTS5.", hint)
        return
    connection = apsw.Connection(":memory:")
    try:
        connection.enable_load_extension(True)
        connection.load_extension(sqlite_vec.loadable_path())
        [(extension,)] = connection.execute("SELECT vec_version()")
        message = f"{apsw.sqlite_lib_version()} with FTS5, sqlite-vec {extension}"
        yield Finding("SQLite", "OK", message)
    except (apsw.Error, AttributeError) as error:
        hint = "Reinstall it: pip install --force-reinstall apsw sqlite-vec"
        message = f"The extension sqlite-vec cannot be loaded ({type(error).__name__})."
        yield Finding("SQLite", "problem", message, hint)
    finally:
        connection.close()


def _plugins() -> Iterator[Finding]:
    from corral.providers.stack.registry import broken_plugins

    for plugin in broken_plugins():
        hint = "Fix or uninstall its package."
        yield Finding(f"plugin {plugin.name}", "warning", f"{plugin.reason}.", hint)


def _health(status: ProviderStatus, config: RunConfig) -> Finding:
    from corral.api.provider import Api

    name = f"{status.api} {status.provider_id}"
    health, version = status.health, status.health.version
    if health.status != "OK":
        message = f"{health.message.rstrip('.')}."
        by_default = "embedding" not in config.providers.model_fields_set
        first = next((entry.provider_id for entry in config.providers.embedding), "")
        if status.api is Api.EMBEDDING and by_default and status.provider_id != first:
            return Finding(name, "warning", message, "Only vector DBs with its model need it.")
        return Finding(name, "problem", message, _remedy(status))
    message = f"{status.provider_type}{f', {version}' if version else ''}"
    if health.message:
        return Finding(name, "warning", f"{message}: {health.message}")
    return Finding(name, "OK", message)


def _remedy(status: ProviderStatus) -> str:
    """Return advice for a service that cannot be reached, unless the message has a hint."""
    if not status.provider_type.startswith("remote::") or ". " in status.health.message:
        return ""
    return f"Start its server, or correct its settings in run.yaml (providers.{status.api})."


async def _models(
    configured: ConfiguredProviders, statuses: Sequence[ProviderStatus]
) -> AsyncIterator[Finding]:
    """Load the models of healthy in-process providers that need to fetch nothing, each once."""
    from corral.api.provider import Api

    ready = {
        (each.api, each.provider_id)
        for each in statuses
        if each.provider_type.startswith("inline::")
        and (each.health.status, each.health.message) == ("OK", "")
    }
    embedding = [(Api.EMBEDDING, provider, info.model) for provider, info in configured.models()]
    rerank = [(Api.RERANK, provider, model) for provider, model in configured.rerank_models()]
    loaded: list[object] = []
    for api, provider_id, model in (*embedding, *rerank):
        if (api, provider_id) not in ready:
            continue
        try:
            load = configured.embedder if api is Api.EMBEDDING else configured.reranker
            instance = await load(model)
            if not any(instance is other for other in loaded):  # A model may have two names.
                yield Finding(f"model {model}", "OK", "loads; its files are the expected ones")
            loaded.append(instance)
        except CorralError as error:
            yield _problem(f"model {model}", error)


def _state(folder: Path, config: RunConfig) -> Finding:
    from corral.providers.state.opening import Place, revision_of
    from corral.providers.state.tables import HEAD

    place = Place(folder, config.state.get_secret_value())
    if place.is_sqlite and not place.path.exists():
        return Finding("state", "OK", f"{place.path.name}, which the first start makes")
    engine = place.connected(isolation_level="AUTOCOMMIT")
    try:
        with place.errors():
            revision = revision_of(engine)
            if revision and not (place.is_sqlite and revision < HEAD):
                place.prepare(engine)  # It checks, because there is nothing to make or to upgrade.
    except CorralError as error:
        return _problem("state", error)
    finally:
        engine.dispose()
    version = f"schema version {revision}" if revision else "empty; the first start makes tables"
    upgrade = "" if revision in ("", HEAD) else f", which the next start upgrades to {HEAD}"
    return Finding("state", "OK", f"{place.name}, {version}{upgrade}")


async def _files(folder: Path, config: RunConfig) -> Finding:
    url = config.files.url
    if url is None:
        return Finding("files", "OK", f"{folder / 'blobs'}")
    from corral.providers.files.bucket import Bucket
    from corral.providers.state.state import State

    async def installation() -> str:
        return State(folder, config.state.get_secret_value()).recorded_installation() or "none"

    try:
        await Bucket(config.files, installation).check()
    except CorralError as error:
        return _problem("files", error)
    return Finding("files", "OK", url)


def _port(host: str, port: int, folder: Path) -> Finding:
    import socket

    from corral.server.address import running

    if running(folder) == (host, port):
        return Finding("port", "OK", f"{port}, where the server of this data folder listens")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
    except OSError as error:
        hint = "Choose another with `server` in run.yaml, or corral serve --port."
        message = f"Cannot listen on {host}, port {port}: {error.strerror}."
        return Finding("port", "problem", message, hint)
    return Finding("port", "OK", f"{port} on {host} is free" if port else "any free one")
