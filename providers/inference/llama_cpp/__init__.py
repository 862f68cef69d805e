"""inline::llama-cpp: language models in GGUF files, in this process, with llama.cpp."""

from corral.api.provider import Api, ProviderSpec

SPEC = ProviderSpec(
    api=Api.INFERENCE,
    provider_type="inline::llama-cpp",
    description="Language models in GGUF files, in this process, on llama.cpp.",
    config="corral.providers.inference.llama_cpp.config:LlamaCppConfig",
    factory="corral.providers.inference.llama_cpp.provider:create",
    requires=("xllamacpp",),
    extra="llm",
)
