"""BERT's encoder as an ONNX graph: a few kilobytes of structure, without the weights.

Every weight is declared as external data; the session gets the arrays separately. So the cached
graph need not be trusted: the numbers always come from the file whose sha256 has just been checked,
and none is copied. The operators are the fastest ones of onnxruntime on every platform, including
some of its fused operators (`com.microsoft`). No optimization at load time is needed, so the graph
opens fast. Sources: BERT encoder, Devlin et al. 2019, section 3, with post-norm layers as in
Vaswani et al. 2017, section 3.1; exact GELU x * Phi(x), Hendrycks and Gimpel 2016, section 2; mean
pooling, Reimers and Gurevych 2019, section 3; with a weight for each token, Arora, Liang and Ma
2017.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import onnx

CONTRIB = "com.microsoft"

IDS = "input_ids"
TOKENS = "token_embeddings"
WEIGHTS = "token_weights"
MASK = "attention_mask"
EMBEDDING = "embedding"
EMBEDDED = "embeddings.LayerNorm"
GELU = "gelu"

STATE_TOP = 127
"""The largest absolute value of a state rounded to 8 bits."""

LIFTED_TOP = 255
"""The same for a state that was shifted above zero."""

GELU_DEPTH = 0.17
"""Lower bound of GELU, with the sign removed: its minimum is -0.16997."""

PARTS = ("query", "key", "value")
"""The projections of attention, in the order of `TOGETHER`."""

TOGETHER = "projection"
"""Name of their combined matrix and bias, for one product instead of three."""

ROTATION = "rotation"
"""Name of the matrix that rotates normalized states, if the matrices are in 8 bits."""


class BertGraph:
    """A graph under construction: nodes in order, and the names of their weights.

    Args:
        weights: The arrays by name; their shapes are declared. A matrix of `linear` is float32 of
            shape (out, in), or in 8 bits, from `precision.at_precision`.
        heads: Number of attention heads.
        epsilon: Epsilon of every normalization.
    """

    def __init__(self, weights: Mapping[str, NDArray[Any]], *, heads: int, epsilon: float) -> None:
        self._weights = weights
        self._heads = heads
        self._epsilon = epsilon
        self._nodes: list[onnx.NodeProto] = []
        self._used: list[str] = []
        self._rounded: set[str] = set()

    def embed_ids(self) -> str:
        """Add and normalize the embeddings of word, position and segment (always 0)."""
        self._add("Sub", [IDS, IDS], "segment_ids")
        names = ("word_embeddings", "position_embeddings", "token_type_embeddings", "LayerNorm")
        tables = [self._weight(f"embeddings.{name}.weight") for name in names]
        bias = self._weight("embeddings.LayerNorm.bias")
        self._leave_out_padding()
        inputs = [IDS, "segment_ids", *tables, bias]
        outputs = "hidden", "unused"
        return self._fused("EmbedLayerNormalization", inputs, *outputs, epsilon=self._epsilon)

    def normalize_tokens(self) -> str:
        """Normalize the sum of word, position and segment embeddings, which is an input."""
        names = ("embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias")
        self._leave_out_padding()
        inputs = [TOKENS, *map(self._weight, names)]
        return self._add("LayerNormalization", inputs, "hidden", axis=-1, epsilon=self._epsilon)

    def layer(self, prefix: str, hidden: str) -> str:
        """Self-attention and feed-forward, each added to its input and normalized."""
        attention = f"{prefix}attention."
        mixed = self._attention(f"{attention}self.", self._turned(hidden))
        hidden = self._add_and_normalize(f"{attention}output", mixed, hidden)
        turned = self._turned(hidden)
        inner = self._linear(f"{prefix}intermediate.dense", turned, f"{prefix}inner")
        inner_bias = self._weight(f"{prefix}intermediate.dense.bias")
        inner = self._add("Add", [inner, inner_bias], f"{prefix}inner.biased")
        inner = self._fused("Gelu", [inner], f"{prefix}{GELU}")
        return self._add_and_normalize(f"{prefix}output", inner, hidden)

    def mean_pooling(self, hidden: str) -> None:
        """Sum the tokens' states and scale to L2 norm 1; the mean differs only by a factor."""
        self._pool(hidden, "mask_float")

    def weighted_pooling(self, hidden: str) -> None:
        """Sum the tokens' states times their weights, which are an input; scale to L2 norm 1."""
        self._pool(hidden, WEIGHTS)

    def serialized(self, name: str, dimension: int, *, from_ids: bool) -> bytes:
        """Return the graph.

        Inputs: `input_ids`, int32 of shape (batch, tokens), or `token_embeddings`, float32 of shape
        (batch, tokens, dimension), with `token_weights`, float32 of shape (batch, tokens), 0 for
        padding; and `attention_mask` (1 = token, 0 = padding on the right), int32 of shape (batch,
        tokens). Output: `embedding`, float32 of shape (batch, dimension), of L2 norm 1.
        """
        from onnx import TensorProto, helper  # noqa: PLC0415 - slow, and a cached graph needs none

        shape: list[str | int] = ["batch", "tokens"]
        declare = helper.make_tensor_value_info
        ids = declare(IDS, TensorProto.INT32, shape)
        tokens = declare(TOKENS, TensorProto.FLOAT, [*shape, dimension])
        weights = declare(WEIGHTS, TensorProto.FLOAT, shape)
        inputs = [ids] if from_ids else [tokens, weights]
        model = helper.make_model(
            helper.make_graph(
                self._nodes,
                name,
                [*inputs, declare(MASK, TensorProto.INT32, shape)],
                [declare(EMBEDDING, TensorProto.FLOAT, ["batch", dimension])],
                [_declare(name, self._weights[name]) for name in self._used] + self._constants(),
            ),
            opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)],
            ir_version=8,  # supported by every onnxruntime that Corral supports
        )
        return bytes(model.SerializeToString())

    def _pool(self, hidden: str, weights: str) -> None:
        self._add("Unsqueeze", [weights, "axis_1"], "weight_row")  # (batch, 1, tokens)
        self._add("MatMul", ["weight_row", hidden], "sum_row")
        self._add("Squeeze", ["sum_row", "axis_1"], "sum")
        self._add("LpNormalization", ["sum"], EMBEDDING, axis=1, p=2)

    def _attention(self, prefix: str, states: str) -> str:
        """Return the attention of each token to the others.

        It uses plain operators, because onnxruntime's MultiHeadAttention takes twice as long for a
        question.
        """
        projected = self._linear(f"{prefix}{TOGETHER}", states, f"{prefix}unbiased")
        bias = self._weight(f"{prefix}{TOGETHER}.bias")
        self._add("Add", [projected, bias], f"{prefix}biased")
        self._add("Reshape", [f"{prefix}biased", "in_heads"], f"{prefix}by_token")
        self._add("Transpose", [f"{prefix}by_token"], f"{prefix}by_head", perm=[0, 2, 1, 3])
        query, key, value = (f"{prefix}{part}" for part in PARTS)
        self._node("Split", [f"{prefix}by_head"], [query, key, value], "", {"axis": 1})
        scale = (3 * self._heads / len(self._weights[f"{prefix}{TOGETHER}.bias"])) ** 0.5
        self._fused("FusedMatMul", [query, key], f"{prefix}products", transB=1, alpha=scale)
        self._add("Add", [f"{prefix}products", "no_padding"], f"{prefix}masked")
        self._add("Softmax", [f"{prefix}masked"], f"{prefix}shares", axis=-1)
        self._add("MatMul", [f"{prefix}shares", value], f"{prefix}taken")
        self._add("Transpose", [f"{prefix}taken"], f"{prefix}taken_by_token", perm=[0, 2, 1, 3])
        return self._add("Reshape", [f"{prefix}taken_by_token", "in_rows"], f"{prefix}mixed")

    def _leave_out_padding(self) -> None:
        """Compute the attention bias: 0 for a token, -10000 for padding."""
        self._add("Cast", [MASK], "mask_float", to=1)  # 1: float32
        self._add("Sub", ["mask_float", "one"], "mask_below")
        self._add("Mul", ["mask_below", "far_below"], "mask_added")
        self._add("Unsqueeze", ["mask_added", "axes_1_2"], "no_padding")

    def _add_and_normalize(self, prefix: str, inner: str, residual: str) -> str:
        dense = self._linear(f"{prefix}.dense", inner, f"{prefix}.out")
        self._add("Add", [dense, self._weight(f"{prefix}.dense.bias")], f"{prefix}.biased")
        self._add("Add", [f"{prefix}.biased", residual], f"{prefix}.sum")
        names = (f"{prefix}.LayerNorm.weight", f"{prefix}.LayerNorm.bias")
        inputs = [f"{prefix}.sum", *map(self._weight, names)]
        return self._add(
            "LayerNormalization", inputs, f"{prefix}.norm", axis=-1, epsilon=self._epsilon
        )

    def _linear(self, prefix: str, hidden: str, output: str) -> str:
        """Multiply by the transposed weight; the following operator adds the bias."""
        name = f"{prefix}.weight"
        if self._weights[name].dtype != np.int8:
            return self._fused("FusedMatMul", [hidden, self._weight(name)], output, transB=1)
        in_8_bits = self._lifted_in_8_bits if hidden.endswith(GELU) else self._in_8_bits
        numbers, largest, zero = in_8_bits(hidden)
        matrix = [self._weight(name), "one", self._weight(f"{name}.scales")]
        self._fused("MatMulIntegerToFloat", [numbers, *matrix, zero], f"{output}.unit")
        return self._add("Mul", [f"{output}.unit", largest], output)

    def _turned(self, hidden: str) -> str:
        """Rotate normalized states in blocks, if the matrices that read them are rotated.

        This spreads their few large columns over the others, so all keep more precision.
        """
        if ROTATION not in self._weights:
            return hidden
        self._add("Reshape", [hidden, "in_blocks"], f"{hidden}.blocks")
        self._add("MatMul", [f"{hidden}.blocks", self._weight(ROTATION)], f"{hidden}.rotated")
        return self._add("Reshape", [f"{hidden}.rotated", "in_rows"], f"{hidden}.turned")

    def _lifted_in_8_bits(self, hidden: str) -> tuple[str, str, str]:
        """Round GELU's output like `_in_8_bits`, from its minimum to the row's maximum."""
        names = numbers, largest, _ = f"{hidden}.numbers", f"{hidden}.largest", "zero_lifted"
        self._rounded.add(hidden)
        self._add("ReduceMax", [hidden], f"{hidden}.top", axes=[-1], keepdims=1)
        self._add("Add", [f"{hidden}.top", "gelu_depth"], largest)
        self._add("Div", ["lifted_top", largest], f"{hidden}.factor")
        self._add("Add", [hidden, "gelu_depth"], f"{hidden}.lifted")
        self._add("Mul", [f"{hidden}.lifted", f"{hidden}.factor"], f"{hidden}.scaled")
        self._add("QuantizeLinear", [f"{hidden}.scaled", "one", "zero_lifted"], numbers)
        return names

    def _in_8_bits(self, hidden: str) -> tuple[str, str, str]:
        """Round states to 8 bits, scaled by the row's maximum, so the batch does not matter."""
        names = numbers, largest, _ = f"{hidden}.numbers", f"{hidden}.largest", "zero_state"
        if hidden not in self._rounded:
            self._rounded.add(hidden)
            self._add("Abs", [hidden], f"{hidden}.abs")
            self._add("ReduceMax", [f"{hidden}.abs"], largest, axes=[-1], keepdims=1)
            self._add("Div", ["state_top", largest], f"{hidden}.factor")
            self._add("Mul", [hidden, f"{hidden}.factor"], f"{hidden}.scaled")
            self._add("QuantizeLinear", [f"{hidden}.scaled", "one", "zero_state"], numbers)
        return names

    def _constants(self) -> list[onnx.TensorProto]:
        from onnx import TensorProto, helper  # noqa: PLC0415 - slow, and a cached graph needs none

        row = len(self._weights[f"{EMBEDDED}.weight"])
        heads = [0, -1, 3 * self._heads, row // self._heads]
        every = [
            helper.make_tensor("axis_1", TensorProto.INT64, [1], [1]),
            helper.make_tensor("axes_1_2", TensorProto.INT64, [2], [1, 2]),
            helper.make_tensor("in_heads", TensorProto.INT64, [4], heads),
            helper.make_tensor("in_rows", TensorProto.INT64, [3], [0, -1, row]),
            helper.make_tensor("one", TensorProto.FLOAT, [], [1.0]),
            helper.make_tensor("far_below", TensorProto.FLOAT, [], [1e4]),
        ]
        if self._rounded:
            every += [
                helper.make_tensor("state_top", TensorProto.FLOAT, [], [float(STATE_TOP)]),
                # Numbers from 0 to 255 with the zero at 128: this type is fast everywhere.
                helper.make_tensor("zero_state", TensorProto.UINT8, [], [128]),
            ]
        if ROTATION in self._used:
            block = len(self._weights[ROTATION])
            every += [
                helper.make_tensor("in_blocks", TensorProto.INT64, [3], [0, -1, block]),
                helper.make_tensor("gelu_depth", TensorProto.FLOAT, [], [GELU_DEPTH]),
                helper.make_tensor("lifted_top", TensorProto.FLOAT, [], [float(LIFTED_TOP)]),
                helper.make_tensor("zero_lifted", TensorProto.UINT8, [], [0]),
            ]
        return every

    def _weight(self, name: str) -> str:
        if name not in self._used:
            self._used.append(name)
        return name

    def _add(self, op: str, inputs: Iterable[str], output: str, **attributes: Any) -> str:
        """Add a standard operator and return the name of its first output."""
        return self._node(op, inputs, [output], "", attributes)

    def _fused(self, op: str, inputs: Iterable[str], *outputs: str, **attributes: Any) -> str:
        return self._node(op, inputs, list(outputs), CONTRIB, attributes)

    def _node(
        self, op: str, inputs: Iterable[str], outputs: list[str], domain: str, kw: dict[str, Any]
    ) -> str:
        from onnx import helper  # noqa: PLC0415 - slow, and a cached graph needs none

        self._nodes.append(helper.make_node(op, list(inputs), outputs, domain=domain, **kw))
        return outputs[0]


def _declare(name: str, weight: NDArray[Any]) -> onnx.TensorProto:
    from onnx import TensorProto  # noqa: PLC0415 - slow, and a cached graph needs none

    tensor = TensorProto(
        name=name,
        dims=weight.shape,
        data_type=TensorProto.INT8 if weight.dtype == np.int8 else TensorProto.FLOAT,
        data_location=TensorProto.EXTERNAL,
    )
    # onnxruntime requires a location even for arrays in memory; it never opens it.
    for key, value in (("location", "weights"), ("offset", "0"), ("length", str(weight.nbytes))):
        tensor.external_data.add(key=key, value=value)
    return tensor
