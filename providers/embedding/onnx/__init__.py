"""inline::onnx: sentence models in ONNX format, from a folder or a hub, in this process."""

from corral.api.provider import Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.EMBEDDING,
    provider_type="inline::onnx",
    description="Any sentence model in ONNX form, from a folder or a pinned hub revision.",
    config="corral.providers.embedding.onnx.config:OnnxConfig",
    factory="corral.providers.embedding.onnx.embedder:create",
    requires=("onnxruntime", "tokenizers"),
    extra="onnx",
)
