"""Compute the vector that `center.py` of e5 subtracts from each embedding.

python -m lab.e5_center    # writes center.npy again
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corral.providers.embedding.e5.center import FILE
from corral.providers.embedding.e5.model import Model
from corral.providers.embedding.e5.weights import model_file, read_model


def neutral_texts(pieces: Sequence[bytes]) -> tuple[list[str], list[str]]:
    """Return neutral texts of words in all languages: 500 single words, and 100 texts of 5 to 60.

    Args:
        pieces: The vocabulary in UTF-8; a word begins with U+2581.
    """
    chance = random.Random(0)
    texts = [piece.decode() for piece in pieces]
    words = [text[1:] for text in texts if text.startswith("\u2581") and len(text) >= 4]
    alone = chance.sample(words, 500)
    return alone, [" ".join(chance.choices(words, k=chance.randint(5, 60))) for _ in range(100)]


def measured(model: Model, *groups: Sequence[str]) -> NDArray[np.float32]:
    """Return the mean of embeddings without centering, with equal weight for each group."""
    mean: NDArray[np.float32] = np.mean([_mean(model, texts) for texts in groups], axis=0)
    return mean


def _mean(model: Model, texts: Sequence[str]) -> NDArray[np.float32]:
    tokens = sorted(model.tokenize([model.passage + text for text in texts]), key=len)
    batches = [model.mean(tokens[start : start + 20]) for start in range(0, len(tokens), 20)]
    mean: NDArray[np.float32] = np.concatenate(batches).mean(axis=0)
    return mean


def main() -> None:
    """Write the file for `common_vector`."""
    path = model_file(None)
    texts = neutral_texts(read_model(path).pieces)
    with tempfile.TemporaryDirectory() as home:
        model = Model(path, Path(home), 1, "float32", centered=True)
        np.save(FILE, measured(model, *texts).astype(np.float16))


if __name__ == "__main__":
    main()
