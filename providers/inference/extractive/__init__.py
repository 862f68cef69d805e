"""inline::extractive: answers that quote sentences of the sources, without a language model."""

from corral.api.provider import Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.INFERENCE,
    provider_type="inline::extractive",
    description="Quotes the sentences that answer best; needs no language model.",
    config="corral.providers.inference.extractive.config:ExtractiveConfig",
    factory="corral.providers.inference.extractive.model:create",
)
