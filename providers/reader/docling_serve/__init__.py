"""remote::docling-serve: Docling behind HTTP, with layout, tables and text recognition."""

from corral.api.provider import Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.READER,
    provider_type="remote::docling-serve",
    description="Docling Serve: layout, tables and text recognition by models.",
    config="corral.providers.reader.docling_serve.config:DoclingServeConfig",
    factory="corral.providers.reader.docling_serve.reader:create",
)
