"""Texts to measure with: judged sets in BEIR layout, and seeded synthetic text."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class JudgedSet:
    """Documents, queries and relevance judgements.

    Attributes:
        name: The folder's name.
        documents: Text by document id; title and text joined by a space, as BEIR does.
        queries: Text by query id; only queries with a judgement.
        qrels: Relevance by query id and document id; above 0 is relevant.
    """

    name: str
    documents: dict[str, str]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]


def read_beir(folder: Path, split: str = "test") -> JudgedSet:
    """Read `corpus.jsonl`, `queries.jsonl` and `qrels/SPLIT.tsv`.

    Raises:
        ValueError: A line is malformed (file and line), or a judgement names an unknown id.
    """
    corpus = _read_lines(folder / "corpus.jsonl")
    documents = {row["_id"]: f"{row.get('title', '')} {row['text']}".strip() for row in corpus}
    texts = {row["_id"]: row["text"] for row in _read_lines(folder / "queries.jsonl")}
    qrels: dict[str, dict[str, int]] = defaultdict(dict)
    path = folder / "qrels" / f"{split}.tsv"
    for number, line in enumerate(path.read_text("utf-8").splitlines()[1:], start=2):
        fields = line.split("\t")
        if len(fields) != 3 or fields[0] not in texts or fields[1] not in documents:
            raise ValueError(f"{path}:{number}: a query, a document and a relevance are expected")
        qrels[fields[0]][fields[1]] = int(fields[2])
    queries = {key: texts[key] for key in qrels}
    return JudgedSet(folder.name, documents, queries, dict(qrels))


def _read_lines(path: Path) -> list[dict[str, str]]:
    rows = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
            row["_id"], row["text"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}:{number}: {error!r}") from error
        rows.append(row)
    return rows


def synthetic_texts(
    count: int, words: int = 60, vocabulary: int = 50_000, seed: int = 0
) -> list[str]:
    """Return seeded texts whose words follow Zipf's law (exponent 1), as those of a language do."""
    rng = np.random.default_rng(seed)
    share = 1.0 / np.arange(1, vocabulary + 1)
    drawn = rng.choice(vocabulary, size=(count, words), p=share / share.sum())
    names = np.array([word(number) for number in range(vocabulary)])
    return [" ".join(row) for row in names[drawn]]


def word(number: int) -> str:
    """Return the name of the n-th most common synthetic word; no stemmer changes it."""
    return f"w{number:05d}"


def synthetic_embeddings(
    count: int, dimension: int = 384, clusters: int = 1000, seed: int = 0
) -> NDArray[np.float32]:
    """Return seeded unit vectors in clusters, shape (count, dimension), float32."""
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((clusters, dimension), dtype=np.float32)
    noise = rng.standard_normal((count, dimension), dtype=np.float32)
    points = centers[rng.integers(0, clusters, count)] + 0.7 * noise
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points
