"""Corral as a vector_io provider of OGX: `remote::corral`, `inline::corral` in its process."""

from __future__ import annotations

from typing import Any

from ogx_api import Api

from ogx_corral.config import CorralConfig


async def get_adapter_impl(
    config: CorralConfig, deps: dict[Api, Any], policy: list[Any] | None = None
) -> Any:
    """Return the provider; OGX calls this for `remote::corral`."""
    from ogx_corral.adapter import CorralAdapter  # noqa: PLC0415 - for listing it is not needed

    adapter = CorralAdapter(
        config, deps[Api.inference], deps.get(Api.files), deps.get(Api.file_processors), policy
    )
    await adapter.initialize()
    return adapter


get_provider_impl = get_adapter_impl
"""OGX calls this for `inline::corral`."""
