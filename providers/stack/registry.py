"""Find provider specs by entry point, and build providers from them, importing engines late."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from corral.api.errors import ConfigError, CorralError, MissingDependency, UnknownProvider
from corral.api.findings import first_finding
from corral.api.provider import (
    ENTRY_POINT_GROUP,
    Api,
    Provider,
    ProviderConfig,
    ProviderSpec,
)
from corral.providers.base.config import ProviderEntry
from corral.providers.base.importing import no_collection
from corral.providers.vector_io.kit.write_ahead import WriteLogs


@dataclass(frozen=True, slots=True)
class BrokenPlugin:
    """An installed provider that cannot be loaded: the entry point's name and the reason."""

    name: str
    reason: str


@cache
def provider_specs() -> dict[tuple[Api, str], ProviderSpec]:
    """Return every installed provider's spec by (kind, type), in the order of their names.

    Providers that cannot be loaded are left out; see `broken_plugins`.

    Raises:
        ConfigError: Two packages claim a type.
    """
    found: dict[tuple[Api, str], tuple[ProviderSpec, str]] = {}
    for name, spec in _entries():
        if not isinstance(spec, ProviderSpec):
            continue
        first, its_name = found.setdefault((spec.api, spec.provider_type), (spec, name))
        if first != spec:
            raise ConfigError(
                f"Two packages provide {spec.api} {spec.provider_type}: the entry points "
                f"{its_name} and {name}.",
                hint="Uninstall one of them, or give its provider another type.",
            )
    return {key: spec for key, (spec, _) in found.items()}


@cache
def broken_plugins() -> list[BrokenPlugin]:
    """Return the installed providers that cannot be loaded, in the order of their names."""
    return [BrokenPlugin(name, reason) for name, reason in _entries() if isinstance(reason, str)]


def _entries() -> Iterator[tuple[str, ProviderSpec | str]]:
    """Yield each entry point's name, with its spec or the reason for its failure."""
    for entry in sorted(metadata.entry_points(group=ENTRY_POINT_GROUP), key=lambda e: e.name):
        try:
            spec = entry.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - anyone's module is imported
            yield entry.name, f"{entry.value} cannot be imported: {_said(error)}"
            continue
        is_spec = isinstance(spec, ProviderSpec)
        yield entry.name, spec if is_spec else f"{entry.value} is not a ProviderSpec"


def find_spec(api: Api, provider_type: str) -> ProviderSpec:
    """Return the spec of a provider type.

    Raises:
        UnknownProvider: The type is not installed; the message names the nearest type and the
            broken plugins.
    """
    specs = provider_specs()
    if (api, provider_type) not in specs:
        known = [name for kind, name in specs if kind is api]
        unknown = UnknownProvider(provider_type, known, field="provider_type")
        for broken in broken_plugins():
            unknown.hint += f" Broken: {broken.name} ({broken.reason})."
        raise unknown
    return specs[api, provider_type]


def is_inline(provider_type: str) -> bool:
    """Return True if a provider of this type runs in this process, with its data in a folder."""
    return provider_type.startswith("inline::")


def config_class(spec: ProviderSpec) -> type[ProviderConfig]:
    """Return the model of a provider type's settings; this imports no engine.

    Raises:
        ConfigError: The class cannot be imported, or is not a `ProviderConfig`.
    """
    model = _load(spec, spec.config)
    if not (isinstance(model, type) and issubclass(model, ProviderConfig)):
        raise _broken(spec, f"{spec.config} is not a subclass of ProviderConfig")
    return model


def check_config(api: Api, entry: ProviderEntry) -> ProviderConfig:
    """Return an entry's settings as its provider's config.

    Raises:
        UnknownProvider: No such type.
        ConfigError: A key is unknown or a value is out of range, with its path; or the plugin's
            config class cannot be imported, or is not a `ProviderConfig`.
    """
    model = config_class(find_spec(api, entry.provider_type))
    try:
        config = model.model_validate(entry.config)
    except ValidationError as error:
        where, words = first_finding(error, entry.provider_id, "config")
        raise ConfigError(f"providers.{api}: {where}: {words}.", field=where) from None
    return config


def build_provider(
    api: Api, entry: ProviderEntry, home: Path, logs: WriteLogs | None = None
) -> Provider:
    """Build a configured provider; this imports its engine.

    Args:
        logs: The write-ahead logs, for a provider that needs them; None for files in `home`.

    Raises:
        UnknownProvider, ConfigError: See `check_config`; or the plugin's factory fails.
        MissingDependency: A package that it needs is not installed.
    """
    spec = find_spec(api, entry.provider_type)
    config = check_config(api, entry)
    for distribution in spec.requires:
        try:
            metadata.distribution(distribution)
        except metadata.PackageNotFoundError:
            command = f"pip install 'corral-rag[{spec.extra}]'"
            command += f" && {spec.then_run}" if spec.then_run else ""
            raise MissingDependency(spec.provider_type, distribution, command) from None
    factory = _load(spec, spec.factory)
    try:
        with no_collection():  # Some factories import their engine.
            own = {"logs": logs} if spec.write_log and logs else {}
            provider: Provider = factory(entry.provider_id, config, home, **own)
    except CorralError:
        raise
    except Exception as error:
        # Leave out the error's text, which may contain a secret from the settings.
        failed = f"{spec.factory} failed with {type(error).__name__}"
        raise _broken(spec, f"{failed} at {_place(error)}") from error
    return provider


def _load(spec: ProviderSpec, reference: str) -> Any:
    """Import the object that a spec refers to as `module:name`.

    Raises:
        ConfigError: The object cannot be imported.
    """
    module, _, name = reference.partition(":")
    try:
        with no_collection():
            return getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:
        raise _broken(spec, f"{reference} cannot be imported: {_said(error)}") from error


def _broken(spec: ProviderSpec, why: str) -> ConfigError:
    return ConfigError(
        f"{spec.provider_type} is broken: {why}.",
        hint="Fix or uninstall its package.",
        field="provider_type",
    )


def _place(error: Exception) -> str:
    """Return the file and the line that raised an error."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(". ")
