"""remote::unstructured: the Unstructured API, hosted or self-hosted in a container."""

from corral.api.provider import Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.READER,
    provider_type="remote::unstructured",
    description="Unstructured's partition API: elements of documents, with text recognition.",
    config="corral.providers.reader.unstructured.config:UnstructuredConfig",
    factory="corral.providers.reader.unstructured.reader:create",
)
