"""What all embeddings of the model have in common, which says nothing about a text.

The model puts all texts into a narrow cone: unrelated ones have a cosine of 0.77, and a short text
is near every other short one. Taking a common vector off each embedding spreads them, as Mu and
Viswanath 2018 ("All-but-the-Top", section 2) do with words. Theirs is the mean of the embeddings
that a person has; ours is made of the model's own vocabulary, so it is the same for everybody, and
no stored embedding changes when others come.

    python -m corral.providers.embedding.e5.center    # writes center.npy again
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from corral.providers.embedding.e5.model import Model

SHARE = 0.7
"""How much of the common vector is taken off: with more, texts that the model knows well lose."""

_FILE = Path(__file__).with_name("center.npy")


def common_vector() -> NDArray[np.float32]:
    """Return the mean embedding of texts without a meaning, shape (384,), shorter than 1."""
    stored: NDArray[np.float16] = np.load(_FILE, allow_pickle=False)
    return stored.astype(np.float32)


def without_common_part(
    embeddings: NDArray[np.float32], common: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return embeddings without their common part, shape (n, 384), L2 norm 1."""
    spread = embeddings - SHARE * common
    spread /= np.linalg.norm(spread, axis=1, keepdims=True)
    return spread


def neutral_texts(pieces: Sequence[tuple[str, float]]) -> tuple[list[str], list[str]]:
    """Return words of the vocabulary in all its languages: 500 alone, and 100 texts of 5 to 60.

    Args:
        pieces: The vocabulary, text and score; a word begins with U+2581.
    """
    chance = random.Random(0)  # noqa: S311 - no secret
    words = [piece[1:] for piece, _ in pieces if piece.startswith("\u2581") and len(piece) >= 4]
    alone = chance.sample(words, 500)
    return alone, [" ".join(chance.choices(words, k=chance.randint(5, 60))) for _ in range(100)]


def measured(model: Model, *groups: Sequence[str]) -> NDArray[np.float32]:
    """Return the mean of embeddings that still have what they share, each group counted alike."""
    mean: NDArray[np.float32] = np.mean([_mean(model, texts) for texts in groups], axis=0)
    return mean


def _mean(model: Model, texts: Sequence[str]) -> NDArray[np.float32]:
    tokens = sorted(model.tokenize([model.passage + text for text in texts]), key=len)
    batches = [model.mean(tokens[start : start + 20]) for start in range(0, len(tokens), 20)]
    mean: NDArray[np.float32] = np.concatenate(batches).mean(axis=0)
    return mean


def main() -> None:
    """Write the file that `common_vector` reads."""
    from corral.providers.embedding.e5.model import Model  # noqa: PLC0415 - it imports this
    from corral.providers.embedding.e5.weights import model_file, read_model  # noqa: PLC0415

    path = model_file(None)
    texts = neutral_texts(read_model(path).pieces)
    with tempfile.TemporaryDirectory() as home:
        model = Model(path, Path(home), 1, "float32", centered=True)
        np.save(_FILE, measured(model, *texts).astype(np.float16))


if __name__ == "__main__":
    main()
