"""Folders as sentence-transformers saves them; a stand-in for the library where it is missing."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corral.providers.embedding.minilm.weights import model_folder

INSTALLED = importlib.util.find_spec("sentence_transformers") is not None
STAND_IN = Path(__file__).parent / "stand_in"


@contextmanager
def library() -> Iterator[None]:
    """Let `import sentence_transformers` find the library, or its stand-in."""
    if INSTALLED:
        yield
        return
    sys.path.insert(0, str(STAND_IN))
    try:
        yield
    finally:
        sys.path.remove(str(STAND_IN))
        for name in [*sys.modules]:
            if name.split(".")[0] in {"torch", "sentence_transformers"} or name.endswith(
                "sentence_transformers.model"
            ):
                del sys.modules[name]


def minilm_folder(folder: Path) -> Path:
    """Copy MiniLM with its official weights, as the library saved it."""
    source = model_folder(None)
    names = ["config.json", "modules.json", "sentence_bert_config.json", "1_Pooling/config.json"]
    names += ["tokenizer.json", "tokenizer_config.json"]
    (folder / "1_Pooling").mkdir(parents=True)
    for name in names:
        shutil.copyfile(source / name, folder / name)
    (folder / "model.safetensors").symlink_to(source / "model.safetensors")
    return folder


def cross_encoder_folder(folder: Path, labels: int = 1) -> Path:
    """Write a small cross-encoder with random weights; the stand-in reads its settings only."""
    folder.mkdir(parents=True)
    source = model_folder(None)
    shutil.copyfile(source / "tokenizer.json", folder / "tokenizer.json")
    if INSTALLED:
        _write_weights(folder, labels)
    else:
        id2label = {str(label): f"LABEL_{label}" for label in range(labels)}
        (folder / "config.json").write_text(json.dumps({"id2label": id2label}))
    return folder


def _write_weights(folder: Path, labels: int) -> None:
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(7)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = BertConfig(**sizes, intermediate_size=64, num_labels=labels, initializer_range=1.0)
    BertForSequenceClassification(config).save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "model_max_length": 512})
    )
