"""What OGX reads from `module: ogx_corral`: the two provider types."""

from __future__ import annotations

from ogx_api import Api, InlineProviderSpec, ProviderSpec, RemoteProviderSpec

_DEPENDENCIES = {
    "api_dependencies": [Api.inference],
    "optional_api_dependencies": [Api.files, Api.models, Api.file_processors],
}


def get_provider_spec() -> list[ProviderSpec]:
    """Return the provider types, over HTTP and in process."""
    return [
        RemoteProviderSpec(
            api=Api.vector_io,
            adapter_type="corral",
            provider_type="remote::corral",
            module="ogx_corral",
            config_class="ogx_corral.config.RemoteCorralConfig",
            pip_packages=["ogx-corral"],
            description="A Corral server: vector, keyword and hybrid search on any of its engines.",
            **_DEPENDENCIES,
        ),
        InlineProviderSpec(
            api=Api.vector_io,
            provider_type="inline::corral",
            module="ogx_corral",
            config_class="ogx_corral.config.InlineCorralConfig",
            pip_packages=["ogx-corral[inline]"],
            description="Corral in OGX's process: vector, keyword and hybrid search.",
            **_DEPENDENCIES,
        ),
    ]
