"""Find source specs by entry point, and build sources from settings."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from corral.api.errors import ConfigError, CorralError, MissingDependency, UnknownProvider
from corral.api.findings import first_finding
from corral.api.source import SOURCES_GROUP, Source, SourceConfig, SourceSpec
from corral.providers.base.importing import no_collection


@cache
def source_specs() -> dict[str, SourceSpec]:
    """Return the specs of all installed source types, by name.

    Raises:
        ConfigError: A package's entry point cannot be loaded, or two packages use the same name.
    """
    specs: dict[str, SourceSpec] = {}
    for entry in sorted(metadata.entry_points(group=SOURCES_GROUP), key=lambda each: each.name):
        try:
            spec = entry.load()
        except Exception as error:
            raise _broken(entry.name, f"{entry.value} cannot be imported") from error
        if not isinstance(spec, SourceSpec):
            raise _broken(entry.name, f"{entry.value} is not a SourceSpec")
        if specs.setdefault(spec.name, spec) != spec:
            raise _broken(entry.name, f"another package provides {spec.name!r}, too")
    return specs


def config_class(spec: SourceSpec) -> type[SourceConfig]:
    """Return the model of a source's settings.

    Raises:
        ConfigError: The class cannot be imported, or is not a `SourceConfig`.
    """
    model = _loaded(spec, spec.config)
    if not (isinstance(model, type) and issubclass(model, SourceConfig)):
        raise _broken(spec.name, f"{spec.config} is not a subclass of SourceConfig")
    return model


def check_source(settings: Mapping[str, Any], field: str) -> tuple[SourceSpec, SourceConfig]:
    """Return the spec and the checked settings of a source.

    Args:
        settings: `type`, and the settings of that type.
        field: The path of the settings in run.yaml, for error messages.

    Raises:
        UnknownProvider: No such type is installed.
        ConfigError: A setting is unknown or out of range. The message does not quote the value.
    """
    rest = dict(settings)
    name = rest.pop("type", None)
    specs = source_specs()
    if not isinstance(name, str) or name not in specs:
        raise UnknownProvider(str(name), specs, field=f"{field}.type")
    model = config_class(specs[name])
    try:
        return specs[name], model.model_validate(rest)
    except ValidationError as error:
        where, words = first_finding(error, field)
        raise ConfigError(f"{where}: {words}.", field=where) from None


def build_source(settings: Mapping[str, Any], field: str, home: Path) -> Source:
    """Return a new source.

    Raises:
        UnknownProvider, ConfigError: See `check_source`.
        MissingDependency: A package that the source needs is not installed.
    """
    spec, config = check_source(settings, field)
    for distribution in spec.requires:
        try:
            metadata.distribution(distribution)
        except metadata.PackageNotFoundError:
            what = f"The source {spec.name}"
            raise MissingDependency(what, distribution, spec.install) from None
    factory = _loaded(spec, spec.factory)
    try:
        source = factory(config, home)
    except CorralError:
        raise
    except Exception as error:  # Its text may quote a secret.
        raise _broken(spec.name, f"{spec.factory} failed with {type(error).__name__}") from error
    if not isinstance(source, Source):
        raise _broken(spec.name, f"{spec.factory} did not return a Source")
    return source


def _loaded(spec: SourceSpec, reference: str) -> Any:
    module, _, name = reference.partition(":")
    try:
        with no_collection():
            return getattr(importlib.import_module(module), name)
    except Exception as error:
        raise _broken(spec.name, f"{reference} cannot be imported") from error


def _broken(name: str, why: str) -> ConfigError:
    return ConfigError(f"The source {name!r} is broken: {why}.", hint="Fix its package.")
