"""Seeded chunks and questions, shaped like real ones, for sizes that no judged set has.

Embeddings have the structure that all-MiniLM-L6-v2 gives SciFact's 5,183 abstracts: a common
direction, topics, subtopics of about a dozen chunks whose sizes follow a power law, and a spectrum
that falls. Measured at 5,183 x 384, SciFact in parentheses: mean cosine 0.144 (0.134), cosine of
the nearest chunk 0.61 (0.68), of the tenth 0.51 (0.53), of the hundredth 0.38 (0.39), participation
ratio of the covariance's eigenvalues 69 (65). Independent points, by contrast, have no near
neighbors at all, and make a graph search look worse than it is. Words follow Zipf's law; a third of
a chunk's words belong to its subtopic, so that words and meaning agree about as much as in real
text. The bounds in docs/benchmarks.md are measured on simpler data: `synthetic_texts`, whose words
belong to no topic, and `synthetic_embeddings`, in clusters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MEAN, TOPIC, SUBTOPIC, OWN = 0.36, 0.47, 0.40, 0.70
"""Lengths of the components of an embedding; fitted, see above."""
PER_TOPIC, PER_SUBTOPIC = 150, 12
SUBTOPIC_EXPONENT = 0.5
SPECTRUM_SHIFT = 3.0
"""The n-th direction has variance proportional to 1 / (n + 3)."""

WORDS, VOCABULARY = 60, 50_000
TOPICAL_WORDS = 20
"""Distinct words of a subtopic, from anywhere in the vocabulary except its `COMMON` head."""
COMMON = 40
"""Number of most common words, which occur in every text."""
QUESTION_WORDS = 8
ALL_COMMON_EVERY = 4
"""Every fourth question has only common words: the most expensive case for a keyword index."""


@dataclass(frozen=True, slots=True)
class SyntheticData:
    """Texts, questions and their embeddings.

    Attributes:
        texts: Texts of the chunks.
        embeddings: Embeddings of the chunks, shape (len(texts), dimension), float32, length 1.
        questions: Texts of the questions, distinct.
        question_embeddings: Embeddings of the questions, likewise. No question is a stored chunk.
    """

    texts: list[str]
    embeddings: NDArray[np.float32]
    questions: list[str]
    question_embeddings: NDArray[np.float32]


def synthetic_data(
    count: int, questions: int = 200, dimension: int = 384, seed: int = 0
) -> SyntheticData:
    """Return seeded data; equal arguments give equal data.

    Args:
        count: Number of chunks, at least 1.
        questions: Number of questions, at least 1; each is about the subtopic of a random chunk.
        dimension: Dimension of the embeddings.
        seed: Seed of all data.
    """
    rng = np.random.default_rng(seed)
    subtopics = max(2, count // PER_SUBTOPIC)
    share = 1.0 / np.arange(1, subtopics + 1) ** SUBTOPIC_EXPONENT
    chosen = rng.choice(subtopics, size=count, p=share / share.sum())
    asked = chosen[rng.integers(0, count, questions)]
    rows = _embeddings(rng, np.concatenate([chosen, asked]), subtopics, dimension)
    own_words = rng.integers(COMMON, VOCABULARY, (subtopics, TOPICAL_WORDS))
    return SyntheticData(
        texts=_texts(rng, own_words[chosen]),
        embeddings=rows[:count],
        questions=_questions(rng, own_words[asked]),
        question_embeddings=rows[count:],
    )


def synthetic_texts(count: int) -> list[str]:
    """Return texts of 60 words by Zipf's law, the same each time."""
    return [sentence(row) for row in zipf(np.random.default_rng(0), count, WORDS).tolist()]


def synthetic_embeddings(count: int) -> NDArray[np.float32]:
    """Return unit vectors in 1000 clusters, shape (count, 384), float32, the same each time."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((1000, 384), dtype=np.float32)
    noise = rng.standard_normal((count, 384), dtype=np.float32)
    points = centers[rng.integers(0, len(centers), count)] + 0.7 * noise
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points


def zipf(rng: np.random.Generator, texts: int, words: int) -> NDArray[np.int64]:
    """Return random word numbers, shape (texts, words), distributed as in a natural language."""
    share = 1.0 / np.arange(1, VOCABULARY + 1)
    return rng.choice(VOCABULARY, size=(texts, words), p=share / share.sum())


def sentence(numbers: Iterable[int]) -> str:
    """Return words for numbers, 0 being the most common; no stemmer changes them."""
    return " ".join(f"w{number:05d}" for number in numbers)


def _embeddings(
    rng: np.random.Generator, subtopic: NDArray[np.int64], subtopics: int, dimension: int
) -> NDArray[np.float32]:
    """Return an embedding of length 1 for each entry of `subtopic`."""
    spectrum = 1.0 / (np.arange(dimension) + 1 + SPECTRUM_SHIFT)
    scale = np.sqrt(spectrum / spectrum.sum()).astype(np.float32)

    def points(number: int) -> NDArray[np.float32]:
        made: NDArray[np.float32] = rng.standard_normal((number, dimension), dtype=np.float32)
        made *= scale
        return made

    mean = rng.standard_normal(dimension, dtype=np.float32)
    topics = points(max(2, subtopics * PER_SUBTOPIC // PER_TOPIC))
    centers = TOPIC * topics[rng.integers(0, len(topics), subtopics)] + SUBTOPIC * points(subtopics)
    rows = OWN * points(len(subtopic))
    rows += centers[subtopic]
    rows += MEAN * mean / np.linalg.norm(mean)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def _texts(rng: np.random.Generator, own_words: NDArray[np.int64]) -> list[str]:
    """Return a text for each row of topical words: a third of the words, the rest by Zipf's law."""
    drawn = zipf(rng, len(own_words), WORDS)
    third = WORDS // 3
    drawn[:, :third] = _drawn_from(rng, own_words, third)
    return [sentence(row) for row in drawn.tolist()]


def _questions(rng: np.random.Generator, own_words: NDArray[np.int64]) -> list[str]:
    asked = []
    common = rng.integers(0, COMMON, (len(own_words), QUESTION_WORDS))
    mixed = common.copy()
    mixed[:, 2:] = _drawn_from(rng, own_words, QUESTION_WORDS - 2)
    for number, rows in enumerate(zip(common, mixed, strict=True)):
        only_common = number % ALL_COMMON_EVERY == ALL_COMMON_EVERY - 1
        asked.append(sentence(rows[0 if only_common else 1]))
    return asked


def _drawn_from(
    rng: np.random.Generator, own_words: NDArray[np.int64], number: int
) -> NDArray[np.int64]:
    """Return `count` of each row's words, drawn with replacement."""
    picked = rng.integers(0, own_words.shape[1], (len(own_words), number))
    found: NDArray[np.int64] = np.take_along_axis(own_words, picked, axis=1)
    return found
