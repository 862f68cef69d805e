"""The configuration in force."""

from __future__ import annotations

from typing import Any

from corral.api.provider import Api
from corral.providers.sources.registry import check_source
from corral.providers.stack.configured import ConfiguredProviders
from corral.providers.stack.registry import check_config


def effective_config(configured: ConfiguredProviders) -> dict[str, Any]:
    """Return all settings as JSON, with secrets masked.

    Providers' defaults are filled in, and the default model is a served one.
    """
    settings = configured.config
    dumped = settings.model_dump(mode="json")
    for api in Api:
        for shown, entry in zip(dumped["providers"][api], settings.providers.of(api), strict=True):
            shown["config"] = check_config(api, entry).model_dump(mode="json")
    for shown, sync_entry in zip(dumped["sync"], settings.sync, strict=True):
        spec, config = check_source(sync_entry.source, f"sync.{sync_entry.name}.source")
        shown["source"] = {"type": spec.name, **config.model_dump(mode="json")}
    return {**dumped, "default_embedding_model": configured.default_model()}
