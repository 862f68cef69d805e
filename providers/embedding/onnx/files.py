"""Read properties from a model's own files: dimension, pooling, prefixes, lengths."""

from __future__ import annotations

from pathlib import Path

from corral.api.errors import ConfigError
from corral.providers.embedding.onnx.config import OnnxModel, Pooling
from corral.providers.models.onnx import CONFIG, LENGTH, read_json

POOLING = "1_Pooling/config.json"
PROMPTS = "config_sentence_transformers.json"
OPTIONAL = (POOLING, PROMPTS, LENGTH)

_POOLINGS: dict[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}


def dimension_of(model: OnnxModel) -> int:
    """Return the configured dimension, or the one in the folder's `config.json`.

    Raises:
        ConfigError: Neither has it.
    """
    found = model.dimension
    if found is None and model.path is not None:
        found = read_json(model.path / CONFIG).get("hidden_size")
    if type(found) is not int or found < 1:
        raise ConfigError(
            f"inline::onnx: the dimension of {model.model!r} is unknown.",
            hint="Set dimension, or put the model's config.json into the folder.",
            field="dimension",
        )
    return found


def pooling_of(model: OnnxModel, folder: Path) -> Pooling:
    """Return the pooling that turns states into an embedding.

    Raises:
        ConfigError: Neither the settings nor the model specify it.
    """
    said = read_json(folder / POOLING)
    found = [pooling for name, pooling in _POOLINGS.items() if said.get(name)]
    if model.pooling is None and len(found) != 1:
        raise ConfigError(
            f"inline::onnx: {model.model!r} outputs token states, and {POOLING} does not say how "
            "to pool them.",
            hint="Set pooling: mean, cls or last.",
            field="pooling",
        )
    return model.pooling or found[0]


def prefixes_of(model: OnnxModel, folder: Path) -> tuple[str, str]:
    """Return the prefixes of questions and of documents."""
    prompts = read_json(folder / PROMPTS).get("prompts") or {}
    query = prompts.get("query", "")
    passage = next((prompts[n] for n in ("document", "passage", "corpus") if n in prompts), "")
    return (
        str(query) if model.query_prefix is None else model.query_prefix,
        str(passage) if model.passage_prefix is None else model.passage_prefix,
    )
