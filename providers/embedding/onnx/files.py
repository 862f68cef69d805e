"""What a model's own files say of it: where the graph is, pooling, prefixes, lengths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from corral.api.errors import ConfigError
from corral.providers.embedding._local.hub import HubFiles, check_digest, hub_folder
from corral.providers.embedding.onnx.config import OnnxModel, Pooling

TOKENIZER = "tokenizer.json"
CONFIG = "config.json"
POOLING = "1_Pooling/config.json"
PROMPTS = "config_sentence_transformers.json"
LENGTH = "sentence_bert_config.json"
DEFAULT_FILES = ("onnx/model.onnx", "model.onnx")

_POOLINGS: dict[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}


def open_folder(model: OnnxModel, home: Path) -> Path:
    """Return the folder that holds a model's files, fetched from a hub where that is named.

    Raises:
        ConfigError: A file is missing, or its sha256 is another one.
        Unavailable: The hub cannot be reached.
    """
    if model.path is None:
        names = (TOKENIZER, CONFIG, model.file or DEFAULT_FILES[0])
        wanted = HubFiles(
            str(model.repository),
            str(model.revision),
            names,
            (POOLING, PROMPTS, LENGTH),
            model.sha256,
            model.hub,
        )
        return hub_folder(home, wanted)
    check_folder(model)
    for name, digest in model.sha256.items():
        check_digest(model.path / name, digest, model.model)
    return model.path


def check_folder(model: OnnxModel) -> None:
    """Refuse a configured folder that lacks a file; what a hub has is seen when it is fetched.

    Raises:
        ConfigError: One is missing.
    """
    if model.path is None:
        return
    for name in (TOKENIZER, CONFIG):
        if not (model.path / name).is_file():
            raise _missing(model, name)
    graph_file(model, model.path)


def graph_file(model: OnnxModel, folder: Path) -> Path:
    """Return the ONNX file.

    Raises:
        ConfigError: There is none.
    """
    names = (model.file,) if model.file else DEFAULT_FILES
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise _missing(model, names[0])


def dimension_of(model: OnnxModel) -> int:
    """Return the dimension: as configured, else as the folder's `config.json` says.

    Raises:
        ConfigError: Neither says it.
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
    """Return how states become an embedding.

    Raises:
        ConfigError: Neither the settings nor the model say it.
    """
    said = read_json(folder / POOLING)
    found = [pooling for name, pooling in _POOLINGS.items() if said.get(name)]
    if model.pooling is None and len(found) != 1:
        raise ConfigError(
            f"inline::onnx: {model.model!r} gives a state for each token, and {POOLING} does not "
            "say how they become one embedding.",
            hint="Set pooling: mean, cls or last.",
            field="pooling",
        )
    return model.pooling or found[0]


def max_tokens_of(model: OnnxModel, folder: Path) -> int:
    """Return how many tokens are read, marks included; 512 where nothing says it."""
    said = read_json(folder / LENGTH).get("max_seq_length")
    limit = read_json(folder / CONFIG).get("max_position_embeddings")
    return model.max_tokens or next((n for n in (said, limit) if type(n) is int and n > 1), 512)


def prefixes_of(model: OnnxModel, folder: Path) -> tuple[str, str]:
    """Return what goes before a question and before a document."""
    prompts = read_json(folder / PROMPTS).get("prompts") or {}
    query = prompts.get("query", "")
    passage = next((prompts[n] for n in ("document", "passage", "corpus") if n in prompts), "")
    return (
        str(query) if model.query_prefix is None else model.query_prefix,
        str(passage) if model.passage_prefix is None else model.passage_prefix,
    )


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object; {} where there is no such file.

    Raises:
        ConfigError: It is something else.
    """
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
        if not isinstance(found, dict):
            raise ValueError("no object")
    except ValueError as error:
        raise ConfigError(f"inline::onnx: {path} is no JSON object ({error}).") from error
    return found


def _missing(model: OnnxModel, name: str) -> ConfigError:
    return ConfigError(
        f"inline::onnx: the folder of {model.model!r} has no file {name!r}.",
        hint="It needs tokenizer.json, config.json and the ONNX file (setting file).",
        field="path",
    )
