"""Folders of ONNX models: MiniLM's real weights, and a table of tokens to compute by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers

from corral.providers.embedding._local.precision import at_precision
from corral.providers.embedding.minilm.model import build_graph
from corral.providers.embedding.minilm.weights import model_folder, read_weights

WORDS = {"[UNK]": 0, "red": 1, "barn": 2, "hill": 3, "query:": 4, "passage:": 5}
ROWS: NDArray[np.float32] = np.array(
    [[1, 1, 1], [2, 0, 0], [0, 3, 0], [0, 0, 4], [1, 0, 1], [0, 1, 1]], np.float32
)


def minilm_folder(folder: Path) -> Path:
    """Write MiniLM with its official weights inside one ONNX file."""
    source = model_folder(None)
    weights = at_precision("float32", read_weights(source))
    model = onnx.load_from_string(build_graph(weights))
    for tensor in model.graph.initializer:
        if tensor.name in weights:
            tensor.CopyFrom(numpy_helper.from_array(np.array(weights[tensor.name]), tensor.name))
    (folder / "onnx").mkdir(parents=True)
    onnx.save(model, folder / "onnx" / "model.onnx")
    (folder / "tokenizer.json").write_bytes((source / "tokenizer.json").read_bytes())
    _write(folder / "config.json", {"hidden_size": 384, "max_position_embeddings": 512})
    _write(folder / "sentence_bert_config.json", {"max_seq_length": 256})
    return folder


def table_folder(folder: Path, pooling: str | None = "pooling_mode_mean_tokens") -> Path:
    """Write a model whose state of a token is its row in `ROWS`."""
    folder.mkdir(parents=True, exist_ok=True)
    shape = ["batch", "tokens"]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, shape)
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*shape, 3])
    graph = helper.make_graph(
        [helper.make_node("Gather", ["rows", "input_ids"], ["last_hidden_state"])],
        "table", inputs, [output], [numpy_helper.from_array(ROWS, "rows")],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), folder / "model.onnx")
    tokenizer = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    _write(folder / "config.json", {"hidden_size": 3, "max_position_embeddings": 8})
    if pooling is not None:
        (folder / "1_Pooling").mkdir(exist_ok=True)
        _write(folder / "1_Pooling" / "config.json", {pooling: True})
    return folder


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))
