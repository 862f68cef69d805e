"""inline::minilm: the model all-MiniLM-L6-v2 in this process, on onnxruntime."""

from corral.api.provider import Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.EMBEDDING,
    provider_type="inline::minilm",
    description="all-MiniLM-L6-v2 in this process: 384 dimensions, English, no service, no key.",
    config="corral.providers.embedding.minilm.config:MiniLMConfig",
    factory="corral.providers.embedding.minilm.embedder:create",
    requires=("onnx", "onnxruntime", "tokenizers"),
    extra="minilm",
)
