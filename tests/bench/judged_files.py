"""Small judged sets on disk, whole or broken."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

CORPUS: list[object] = [
    {"_id": "d1", "title": "Sheep", "text": "graze on the hill"},
    {"_id": "d2", "title": "", "text": "wolves eat sheep"},
    {"_id": "d3", "text": "an engine needs oil"},
]
QUERIES: list[object] = [
    {"_id": "q1", "text": "who eats sheep"},
    {"_id": "q2", "text": "unjudged"},
    {"_id": "q3", "text": "what does an engine need"},
]
QRELS = ["query-id\tcorpus-id\tscore", "q1\td2\t2", "q1\td1\t1", "q3\td3\t1"]


def write_beir(
    folder: Path,
    *,
    corpus: Sequence[object] = tuple(CORPUS),
    queries: Sequence[object] = tuple(QUERIES),
    qrels: Sequence[str] = tuple(QRELS),
    split: str = "test",
) -> Path:
    """Write a set in BEIR layout; a line that is a string is written as it stands."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, rows in (("corpus", corpus), ("queries", queries)):
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "qrels" / f"{split}.tsv").write_text("\n".join(qrels) + "\n", encoding="utf-8")
    return folder
