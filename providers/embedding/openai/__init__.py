"""remote::openai: any service with an OpenAI-compatible /v1/embeddings."""

from corral.api.provider import Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.EMBEDDING,
    provider_type="remote::openai",
    description="Any OpenAI-compatible /v1/embeddings: OpenAI, Ollama, vLLM, TEI, LM Studio.",
    config="corral.providers.embedding.openai.config:OpenAIConfig",
    factory="corral.providers.embedding.openai.embedder:create",
    extra="openai",
)
