"""The common component of all embeddings of the model, which carries no information about a text.

The model's embeddings are in a narrow cone: unrelated texts have a cosine of 0.77, and a short text
is close to every other short one. Subtracting a common vector spreads them, as Mu and Viswanath
2018 ("All-but-the-Top", section 2) show for words. They subtract the mean of the stored embeddings.
Corral's vector is computed from the model's vocabulary by `lab/e5_center.py`, so it is the same
everywhere, and new embeddings never change stored ones.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SHARE = 0.7
"""Share of the common vector that is subtracted; a larger share makes answers on familiar texts
worse."""

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
