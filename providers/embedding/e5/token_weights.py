"""Weights of the tokens in the mean of an embedding: rare tokens weigh more.

    weight = a / (a + p)

p is the probability of the token, from the model's vocabulary, which is a unigram language model of
all its languages (Kudo 2018, "Subword Regularization", section 3.2). The weights are those of
Arora, Liang and Ma 2017, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings", section 3.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

COMMON = 1e-3
"""The paper's constant a, section 4.1: a token with this probability has the weight 0.5."""


def token_weights(scores: NDArray[np.float32], marks: int) -> NDArray[np.float32]:
    """Return the weight of each token of the vocabulary, in (0, 1].

    Args:
        scores: Natural logarithm of p by token id, shape (tokens,).
        marks: Number of special tokens at its beginning; their weight is 1.
    """
    likely = np.exp(scores.astype(np.float64))
    likely[:marks] = 0.0
    return (COMMON / (COMMON + likely)).astype(np.float32)
