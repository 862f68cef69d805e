"""The common vector of all embeddings of the model, which says nothing about a text.

The model puts all texts into a narrow cone: unrelated ones have a cosine of 0.77, and a short text
is near every other short one. Taking a common vector off each embedding spreads them, as Mu and
Viswanath 2018 ("All-but-the-Top", section 2) do with words. Theirs is the mean of the embeddings
that a person has; ours is made of the model's own vocabulary, so it is the same for everybody, and
no stored embedding changes when others come. `lab/e5_center.py` makes it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SHARE = 0.7
"""Share of the common vector that is subtracted; more makes familiar texts worse."""

FILE = Path(__file__).with_name("center.npy")


def common_vector() -> NDArray[np.float32]:
    """Return the mean embedding of meaningless texts, shape (384,), with a norm below 1."""
    stored: NDArray[np.float16] = np.load(FILE, allow_pickle=False)
    return stored.astype(np.float32)


def without_common_part(
    embeddings: NDArray[np.float32], common: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return embeddings without their common part, shape (n, 384), L2 norm 1."""
    spread = embeddings - SHARE * common
    spread /= np.linalg.norm(spread, axis=1, keepdims=True)
    return spread
