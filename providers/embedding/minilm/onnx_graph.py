"""The ONNX graph of all-MiniLM-L6-v2: a few kilobytes of structure, without the weights.

Every weight is declared as external data under its name in the safetensors file; whoever opens
the graph hands over the arrays. So the cached graph can be trusted as little as any file: the
numbers always come from the file whose sha256 has just been checked, and none is copied.

The operators are the fused ones that onnxruntime carries on every platform (`com.microsoft`):
the graph is written as its optimizer would leave it, which makes opening it fast.

Sources: BERT encoder, Devlin et al. 2019, section 3, with post-norm layers as in Vaswani et al.
2017, section 3.1; exact GELU x * Phi(x), Hendrycks and Gimpel 2016, section 2; mean pooling,
Reimers and Gurevych 2019, section 3; sizes from the model's own config (12 heads, 6 layers).
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from corral.providers.embedding.minilm.weights import SHA256, WEIGHTS_NAME

if TYPE_CHECKING:
    import onnx

LAYERS = 6
HEADS = 12
EPSILON = 1e-12
CONTRIB = "com.microsoft"

IDS = "input_ids"
MASK = "attention_mask"
EMBEDDING = "embedding"


def cached_graph(home: Path, weights: Mapping[str, NDArray[np.float32]]) -> bytes:
    """Return the serialized graph, built at the first call and then read from the cache.

    The cache is `home/models/<name>.onnx`. The name holds a digest of the weights' digest and of
    this module's source, so a changed builder never meets an old file. The file appears in one
    step: a process that dies while writing, or two that race, leave a whole file or none.

    Args:
        home: The data folder.
        weights: The tensors that `read_weights` returned; their shapes are declared.
    """
    digest = hashlib.sha256(SHA256[WEIGHTS_NAME].encode() + Path(__file__).read_bytes())
    path = home / "models" / f"minilm-{digest.hexdigest()[:32]}.onnx"
    if not path.exists():
        _write_atomically(path, build_graph(weights))
    return path.read_bytes()


def build_graph(weights: Mapping[str, NDArray[np.float32]]) -> bytes:
    """Return the serialized graph.

    Inputs: `input_ids` and `attention_mask` (1 = token, 0 = padding on the right), int32 of shape
    (batch, tokens). Output: `embedding`, float32 of shape (batch, 384), of L2 norm 1.
    """
    from onnx import TensorProto, helper  # noqa: PLC0415 - only a cold cache needs it: 0.1 s

    graph = _Graph()
    hidden = _embeddings(graph)
    for layer in range(LAYERS):
        hidden = _layer(graph, f"encoder.layer.{layer}.", hidden)
    _pooling(graph, hidden)
    tokens = ["batch", "tokens"]
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "all-MiniLM-L6-v2",
            [helper.make_tensor_value_info(n, TensorProto.INT32, tokens) for n in (IDS, MASK)],
            [helper.make_tensor_value_info(EMBEDDING, TensorProto.FLOAT, ["batch", 384])],
            [_declare(name, weights[name]) for name in graph.weights]
            + [helper.make_tensor("axis_1", TensorProto.INT64, [1], [1])],
        ),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)],
        ir_version=8,  # old enough for every onnxruntime that is supported
    )
    return bytes(model.SerializeToString())


class _Graph:
    """Nodes in order, and the names of the weights that they use."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[str] = []

    def weight(self, name: str) -> str:
        self.weights.append(name)
        return name

    def add(self, op: str, inputs: Iterable[str], output: str, **attributes: Any) -> str:
        """Add a standard operator; returns the name of its (first) output."""
        return self._node(op, inputs, [output], "", attributes)

    def fused(self, op: str, inputs: Iterable[str], *outputs: str, **attributes: Any) -> str:
        return self._node(op, inputs, list(outputs), CONTRIB, attributes)

    def linear(self, prefix: str, hidden: str, output: str) -> str:
        """hidden times the transposed weight; the bias belongs to the operator that follows."""
        return self.fused(
            "FusedMatMul", [hidden, self.weight(f"{prefix}.weight")], output, transB=1
        )

    def _node(
        self, op: str, inputs: Iterable[str], outputs: list[str], domain: str, kw: dict[str, Any]
    ) -> str:
        from onnx import helper  # noqa: PLC0415 - slow to load

        self.nodes.append(helper.make_node(op, list(inputs), outputs, domain=domain, **kw))
        return outputs[0]


def _embeddings(graph: _Graph) -> str:
    """Word + position + segment (always 0), normalized; also counts the tokens of each row."""
    graph.add("Sub", [IDS, IDS], "segment_ids")
    names = ("word_embeddings", "position_embeddings", "token_type_embeddings", "LayerNorm")
    tables = [graph.weight(f"embeddings.{name}.weight") for name in names]
    inputs = [IDS, "segment_ids", *tables, graph.weight("embeddings.LayerNorm.bias"), MASK]
    return graph.fused("EmbedLayerNormalization", inputs, "hidden", "token_counts", epsilon=EPSILON)


def _layer(graph: _Graph, prefix: str, hidden: str) -> str:
    """Self-attention and feed-forward, each added to its input and normalized."""
    attention = f"{prefix}attention."
    parts = [f"{attention}self.{part}" for part in ("query", "key", "value")]
    projected = [graph.linear(part, hidden, f"{part}.out") for part in parts]
    biases = [graph.weight(f"{part}.bias") for part in parts]
    bias = graph.add("Concat", biases, f"{attention}bias", axis=0)
    mixed = graph.fused(
        "MultiHeadAttention",
        [*projected, bias, "token_counts"],
        f"{attention}mixed",
        num_heads=HEADS,
    )
    hidden = _add_and_normalize(graph, f"{attention}output", mixed, hidden)
    inner = graph.linear(f"{prefix}intermediate.dense", hidden, f"{prefix}inner")
    inner_bias = graph.weight(f"{prefix}intermediate.dense.bias")
    inner = graph.fused("BiasGelu", [inner, inner_bias], f"{prefix}gelu")
    return _add_and_normalize(graph, f"{prefix}output", inner, hidden)


def _add_and_normalize(graph: _Graph, prefix: str, inner: str, residual: str) -> str:
    dense = graph.linear(f"{prefix}.dense", inner, f"{prefix}.out")
    names = ("LayerNorm.weight", "LayerNorm.bias", "dense.bias")
    inputs = [dense, residual, *(graph.weight(f"{prefix}.{name}") for name in names)]
    return graph.fused("SkipLayerNormalization", inputs, f"{prefix}.norm", epsilon=EPSILON)


def _pooling(graph: _Graph, hidden: str) -> None:
    """Sum of the tokens' states, then L2 norm 1: the mean differs only by a factor."""
    graph.add("Cast", [MASK], "mask_float", to=1)  # 1: float32
    graph.add("Unsqueeze", ["mask_float", "axis_1"], "mask_row")  # (batch, 1, tokens)
    graph.add("MatMul", ["mask_row", hidden], "sum_row")
    graph.add("Squeeze", ["sum_row", "axis_1"], "sum")
    graph.add("LpNormalization", ["sum"], EMBEDDING, axis=1, p=2)


def _declare(name: str, weight: NDArray[np.float32]) -> onnx.TensorProto:
    from onnx import TensorProto  # noqa: PLC0415 - slow to load

    tensor = TensorProto(
        name=name,
        dims=weight.shape,
        data_type=TensorProto.FLOAT,
        data_location=TensorProto.EXTERNAL,
    )
    # onnxruntime wants a place even where the arrays are handed over; it never opens it.
    for key, value in (("location", WEIGHTS_NAME), ("offset", "0"), ("length", str(weight.nbytes))):
        tensor.external_data.add(key=key, value=value)
    return tensor


def _write_atomically(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{path.stem}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
