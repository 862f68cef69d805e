"""inline::onnx-rerank: cross-encoders in ONNX format, from a folder or a hub, in this process."""

from corral.api.provider import Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.RERANK,
    provider_type="inline::onnx-rerank",
    description="Cross-encoders in ONNX form, from a folder or a pinned hub revision.",
    config="corral.providers.rerank.onnx.config:OnnxRerankConfig",
    factory="corral.providers.rerank.onnx.reranker:create",
    requires=("onnxruntime", "tokenizers"),
    extra="onnx",
)
