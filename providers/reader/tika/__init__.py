"""remote::tika: Apache Tika Server, which reads over a thousand file formats."""

from corral.api.provider import Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.READER,
    provider_type="remote::tika",
    description="Apache Tika Server: over a thousand file formats.",
    config="corral.providers.reader.tika.config:TikaConfig",
    factory="corral.providers.reader.tika.reader:create",
)
