"""inline::minilm in 8 bits: nearly the same embeddings, and the same in every batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from corral.providers.embedding._local.embedder import LocalEmbedder
from corral.providers.embedding._local.precision import TOP, rounded
from corral.providers.embedding.minilm.config import MiniLMConfig
from corral.providers.embedding.minilm.embedder import create

TEXTS = ["That is a happy person", "Vaccines lower the risk. " * 20, "", "WINDOW 95 " * 7]


async def test_8_bits_change_little_and_no_neighbor_matters(
    home: Path, embedder: LocalEmbedder
) -> None:
    """Cosine above 0.97 to float32; a text has one embedding, whatever else is in its batch.

    If this fails: a scale is wrong, or states are rounded by the largest of the whole batch.
    """
    provider = create("minilm", MiniLMConfig(threads=1, precision="int8"), home)
    try:
        small = await provider.embedder("all-MiniLM-L6-v2")
        found, expected = await small.embed_documents(TEXTS), await embedder.embed_documents(TEXTS)
        assert (found * expected).sum(axis=1).min() > 0.97
        assert np.abs(found - expected).max() > 1e-3, "nothing was rounded"
        alone = np.vstack([await small.embed_query(text) for text in TEXTS])
        assert (found * alone).sum(axis=1).min() > 0.99999
        assert small.fingerprint != embedder.fingerprint
    finally:
        await provider.close()


def test_a_matrix_has_a_scale_for_each_output() -> None:
    """By hand: the largest of a row becomes 63, a row of zeros stays zeros, biases stay.

    If this fails: outputs with small weights lose all their digits, or 0 / 0 becomes a number.
    """
    name = "encoder.layer.0.output.dense"
    matrix = np.array([[0.5, -2.0], [0.001, 0.00025], [0.0, 0.0]], np.float32)
    given = {f"{name}.weight": matrix, f"{name}.bias": np.ones(3, np.float32)}
    found = rounded(given)
    numbers = found[f"{name}.weight"]
    assert numbers.dtype == np.int8
    np.testing.assert_array_equal(numbers.T, [[16, -TOP], [TOP, 16], [0, 0]])
    scales = found[f"{name}.weight.scales"]
    np.testing.assert_allclose(numbers.T * scales[:, None] * 127, matrix, atol=0.02)
    assert scales[:2] == pytest.approx([2 / 63 / 127, 0.001 / 63 / 127])
    assert found[f"{name}.bias"] is given[f"{name}.bias"]
