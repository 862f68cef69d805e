"""remote::chat: any service with an OpenAI-compatible /v1/chat/completions."""

from corral.api.provider import Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.INFERENCE,
    provider_type="remote::chat",
    description="Any OpenAI-compatible /v1/chat/completions: OpenAI, Ollama, vLLM, llama.cpp.",
    config="corral.providers.inference.chat.config:ChatConfig",
    factory="corral.providers.inference.chat.model:create",
)
