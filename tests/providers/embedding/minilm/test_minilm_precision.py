"""inline::minilm in 8 bits: nearly the same embeddings, and the same in every batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from corral.providers.embedding._local.embedder import LocalEmbedder
from corral.providers.embedding._local.precision import BLOCK, PAIR_TOP, rotated, rotation, together
from corral.providers.embedding.minilm.config import MiniLMConfig
from corral.providers.embedding.minilm.embedder import create

TEXTS = ["That is a happy person", "Vaccines lower the risk. " * 20, "", "WINDOW 95 " * 7]


async def test_8_bits_change_little_and_no_neighbor_matters(
    home: Path, embedder: LocalEmbedder
) -> None:
    """Cosine above 0.995 to float32; a text has one embedding, whatever else is in its batch.

    If this fails: a scale is wrong, or states are rounded by the largest of the whole batch.
    """
    provider = create("minilm", MiniLMConfig(threads=1, precision="int8"), home)
    try:
        small = await provider.embedder("all-MiniLM-L6-v2")
        found, expected = await small.embed_documents(TEXTS), await embedder.embed_documents(TEXTS)
        assert (found * expected).sum(axis=1).min() > 0.995
        assert np.abs(found - expected).max() > 1e-3, "nothing was rounded"
        alone = np.vstack([await small.embed_query(text) for text in TEXTS])
        assert (found * alone).sum(axis=1).min() > 0.99999
        assert small.fingerprint != embedder.fingerprint
        assert small.traits["precision"] == "int8, rotated", "embedded before states were rotated"
    finally:
        await provider.close()


def test_a_matrix_has_a_scale_for_each_output() -> None:
    """By hand: the largest pair of a row becomes 127, a row of zeros stays zeros, biases stay.

    If this fails: outputs with small weights lose all their digits, or 0 / 0 becomes a number.
    """
    name = "encoder.layer.0.attention.output.dense"
    matrix = np.array([[0.5, -2.0], [0.001, 0.00025], [0.0, 0.0]], np.float32)
    given = {f"{name}.weight": matrix, f"{name}.bias": np.ones(3, np.float32)}
    found = rotated(given)
    numbers = found[f"{name}.weight"]
    assert numbers.dtype == np.int8
    np.testing.assert_array_equal(numbers.T, [[25, -102], [102, 25], [0, 0]])
    scales = found[f"{name}.weight.scales"]
    np.testing.assert_allclose(numbers.T * scales[:, None] * 127, matrix, atol=0.01)
    assert scales[:2] == pytest.approx([2.5 / 127 / 127, 0.00125 / 127 / 127])
    assert found[f"{name}.bias"] is given[f"{name}.bias"]


def test_a_rotated_matrix_fits_16_bits_in_pairs_and_changes_no_product() -> None:
    """Neighbors add up to 128 at most, and rotated states times it are the states times the matrix.

    If this fails: a processor without VNNI overflows and gives other embeddings than one with it,
    or states and matrix are rotated differently.
    """
    rng = np.random.default_rng(7)
    name = "encoder.layer.0.intermediate.dense.weight"
    matrix = rng.standard_t(3, (40, 2 * BLOCK)).astype(np.float32)
    states = rng.normal(size=(5, 2 * BLOCK)).astype(np.float32)
    found = rotated({name: matrix})
    numbers = np.abs(found[name].T.astype(int))
    pairs = numbers[:, 0::2] + numbers[:, 1::2]
    assert pairs.max() <= PAIR_TOP
    assert numbers.max() > PAIR_TOP / 2, "each number has a bound of its own: a bit less"
    turned = (states.reshape(5, -1, BLOCK) @ rotation()).reshape(states.shape)
    product = turned @ found[name] * found[f"{name}.scales"] * 127
    assert np.abs(product - states @ matrix.T).max() < 0.01 * np.abs(states @ matrix.T).max()


def test_what_is_added_to_gelu_is_taken_back_by_the_bias() -> None:
    """By hand: 0.17 more in each state, times the rounded row, leaves the bias.

    If this fails: every token's state is shifted by a layer's row sums.
    """
    name = "encoder.layer.0.output.dense"
    weights = {f"{name}.bias": np.array([1.0], np.float32)}
    weights[f"{name}.weight"] = np.array([[0.5, 0.0, -0.25, 0.0]], np.float32)
    found = rotated(weights)
    assert found[f"{name}.bias"] == pytest.approx([1 - 0.17 * 0.25], abs=1e-3)
    assert found[f"{name}.weight"].T.tolist() == [[127, 0, -64, 0]]


def test_query_key_and_value_are_one_matrix_in_this_order() -> None:
    """Their rows follow each other in the order in which the graph splits them; the rest stays.

    If this fails: attention takes a key for a query, or the graph multiplies three times.
    """
    name = "encoder.layer.0.attention.self"
    weights = {
        f"{name}.{part}.{kind}": np.full(shape, number, np.float32)
        for number, part in enumerate(("value", "query", "key"))
        for kind, shape in (("weight", (2, 3)), ("bias", (2,)))
    }
    found = together({**weights, "encoder.layer.0.output.dense.bias": np.ones(2, np.float32)})
    assert found[f"{name}.projection.weight"][:, 0].tolist() == [1, 1, 2, 2, 0, 0]
    assert found[f"{name}.projection.bias"].tolist() == [1, 1, 2, 2, 0, 0]
    assert len(found) == 3, "the three matrices stay in memory beside the one"
