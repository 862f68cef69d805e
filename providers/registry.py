"""Finds provider specs by entry point and builds providers from them, importing engines late."""

from __future__ import annotations

import importlib
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from corral.api.errors import ConfigError, MissingDependency, UnknownProvider
from corral.api.provider import (
    ENTRY_POINT_GROUP,
    Api,
    Provider,
    ProviderConfig,
    ProviderSpec,
)
from corral.providers.config import ProviderEntry


@cache
def provider_specs() -> dict[tuple[Api, str], ProviderSpec]:
    """Return every installed provider's spec by (kind, type), in the order of their names.

    Raises:
        ConfigError: An entry point does not lead to a ProviderSpec, or two packages claim a type.
    """
    found: dict[tuple[Api, str], ProviderSpec] = {}
    for entry in sorted(metadata.entry_points(group=ENTRY_POINT_GROUP), key=lambda e: e.name):
        spec = entry.load()
        if not isinstance(spec, ProviderSpec):
            raise ConfigError(f"Entry point {entry.name} ({entry.value}) is no ProviderSpec.")
        if found.setdefault((spec.api, spec.provider_type), spec) != spec:
            raise ConfigError(f"Two packages provide {spec.api} {spec.provider_type}.")
    return found


def find_spec(api: Api, provider_type: str) -> ProviderSpec:
    """Return the spec of a provider type.

    Raises:
        UnknownProvider: It is not installed; the message names the nearest one.
    """
    specs = provider_specs()
    if (api, provider_type) not in specs:
        known = [name for kind, name in specs if kind is api]
        raise UnknownProvider(provider_type, known, field="provider_type")
    return specs[api, provider_type]


def check_config(api: Api, entry: ProviderEntry) -> ProviderConfig:
    """Return an entry's settings as its provider's config.

    Raises:
        UnknownProvider: No such type.
        ConfigError: An unknown key or a value out of range, with its place.
    """
    spec = find_spec(api, entry.provider_type)
    try:
        config: ProviderConfig = _load(spec.config).model_validate(entry.config)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join([entry.provider_id, "config", *map(str, first["loc"])])
        raise ConfigError(f"providers.{api}: {where}: {first['msg']}.", field=where) from None
    return config


def build_provider(api: Api, entry: ProviderEntry, home: Path) -> Provider:
    """Build a configured provider; the first moment at which its engine is imported.

    Raises:
        UnknownProvider, ConfigError: As `check_config`.
        MissingDependency: A package that it needs is not installed.
    """
    spec = find_spec(api, entry.provider_type)
    config = check_config(api, entry)
    for distribution in spec.requires:
        try:
            metadata.distribution(distribution)
        except metadata.PackageNotFoundError:
            command = f"pip install 'corral-rag[{spec.extra}]'"
            raise MissingDependency(spec.provider_type, distribution, command) from None
    provider: Provider = _load(spec.factory)(entry.provider_id, config, home)
    return provider


def _load(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)
