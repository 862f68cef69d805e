"""Judged sets in the layout of BEIR: `corpus.jsonl`, `queries.jsonl`, `qrels/SPLIT.tsv`.

Thakur, Reimers, Rueckle, Srivastava, Gurevych: "BEIR: A Heterogenous Benchmark for Zero-shot
Evaluation of Information Retrieval Models", NeurIPS 2021 (datasets and benchmarks).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from corral.api.errors import InvalidRequest
from corral.bench.data.judged import (
    JudgedSet,
    Judgement,
    Texts,
    digests,
    judged_set,
    read_json_lines,
    read_lines,
    relevance_of,
    text_field,
)

CORPUS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels"
DEFAULT_SPLIT = "test"


def is_beir(folder: Path) -> bool:
    """Return whether a folder is meant to be in this layout."""
    return (folder / CORPUS).exists() or (folder / QUERIES).exists()


def read_beir(folder: Path, language: str = "english", split: str | None = None) -> JudgedSet:
    """Return the set of a folder; title and text of a document are joined by a space.

    Args:
        language: Of its texts.
        split: The file in `qrels`; None takes `test`, or the only one that there is.

    Raises:
        InvalidRequest: A file is missing or malformed (file and line), an id appears twice, or
            the judgements do not fit, as `judged_set` says.
    """
    documents, queries = Texts(), Texts()
    for where, row in read_json_lines(folder / CORPUS):
        title = text_field({"title": row.get("title") or ""}, ("title",), where)
        text = f"{title} {text_field(row, ('text',), where)}".strip()
        documents.put(text_field(row, ("_id",), where), text, where)
    for where, row in read_json_lines(folder / QUERIES):
        queries.put(text_field(row, ("_id",), where), text_field(row, ("text",), where), where)
    path = _qrels_file(folder, split)
    files = [folder / CORPUS, folder / QUERIES, path]
    return judged_set(
        folder.name,
        dict(documents),
        queries,
        _judgements(path),
        language=language,
        kind="beir",
        **digests(files, folder),
    )


def _qrels_file(folder: Path, split: str | None) -> Path:
    found = {path.stem: path for path in sorted((folder / QRELS).glob("*.tsv"))}
    if split is None and len(found) == 1:
        return next(iter(found.values()))
    wanted = split or DEFAULT_SPLIT
    if wanted not in found:
        raise InvalidRequest(
            f"{folder / QRELS} holds no {wanted}.tsv.",
            hint=f"It holds: {', '.join(found) or 'no .tsv file'}. Choose one with --split.",
            field="split",
        )
    return found[wanted]


def _judgements(path: Path) -> Iterator[Judgement]:
    for number, (where, line) in enumerate(read_lines(path)):
        fields = line.split("\t")
        relevance = relevance_of(fields[2].strip()) if len(fields) == 3 else None
        if relevance is not None:
            yield Judgement(fields[0].strip(), fields[1].strip(), relevance, where)
        elif number > 0 or len(fields) != 3:  # the first line may be a header
            raise InvalidRequest(
                f"{where}: query id, document id and a whole number, separated by tabs, expected."
            )
