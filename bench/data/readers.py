"""Judged sets in files, and TREC run files.

BEIR's layout is `corpus.jsonl`, `queries.jsonl`, `qrels/SPLIT.tsv`. Thakur, Reimers, Rueckle,
Srivastava, Gurevych: "BEIR: A Heterogenous Benchmark for Zero-shot Evaluation of Information
Retrieval Models", NeurIPS 2021 (datasets and benchmarks).

A folder in TREC's formats has one file of each kind, recognized by the prefix of its name:

* `documents.*` (or `docs.*`): JSON lines with `id` (or `_id`, `docno`, `doc_id`) and `text` (or
  `contents`, `body`), a `title` in front; or TREC text, `<DOC> <DOCNO>id</DOCNO> ... </DOC>`, with
  other tags removed.
* `topics.*` (or `queries.*`): `<top> <num> id <title> query ... </top>`, JSON lines with `id` and
  `text`, or lines of an id, a tab and the query.
* `qrels.*`: lines of query id, an unused column, document id, relevance.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from html import unescape
from itertools import accumulate
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
IDS = ("id", "_id", "docno", "doc_id", "query_id")
TEXTS = ("text", "contents", "body", "title")
_DOC = re.compile(r"<DOC>(.*?)</DOC>", re.DOTALL | re.IGNORECASE)
_DOCNO = re.compile(r"<DOCNO>\s*(.*?)\s*</DOCNO>", re.DOTALL | re.IGNORECASE)
_TOP = re.compile(r"<top>(.*?)</top>", re.DOTALL | re.IGNORECASE)
_NUM = re.compile(r"<num>\s*(?:Number:)?\s*([^\s<]+)", re.IGNORECASE)
_TITLE = re.compile(r"<title>\s*(?:Topic:)?\s*(.*?)\s*(?=<|$)", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")


def is_beir(folder: Path) -> bool:
    """Return True if a folder seems to have BEIR's layout."""
    return (folder / CORPUS).exists() or (folder / QUERIES).exists()


def read_beir(folder: Path, language: str = "english", split: str | None = None) -> JudgedSet:
    """Return the set of a folder; title and text of a document are joined by a space.

    Args:
        language: Language of the texts.
        split: The file in `qrels`; None for `test`, or else the only file.

    Raises:
        InvalidRequest: A file is missing or malformed (file and line), an id appears twice, or the
            judgements do not fit; see `judged_set`.
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
        _beir_judgements(path),
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


def _beir_judgements(path: Path) -> Iterator[Judgement]:
    for number, (where, line) in enumerate(read_lines(path)):
        fields = line.split("\t")
        relevance = relevance_of(fields[2].strip()) if len(fields) == 3 else None
        if relevance is not None:
            yield Judgement(fields[0].strip(), fields[1].strip(), relevance, where)
        elif number > 0 or len(fields) != 3:  # the first line may be a header
            raise InvalidRequest(
                f"{where}: expected query id, document id and an integer, separated by tabs."
            )


def is_trec(folder: Path) -> bool:
    """Return True if a folder seems to have TREC's formats."""
    return any(folder.glob("qrels.*"))


def read_trec(folder: Path, language: str = "english") -> JudgedSet:
    """Return the set of a folder.

    Raises:
        InvalidRequest: A file is missing or malformed (file and line), an id appears twice, or
            the judgements do not fit; see `judged_set`.
    """
    documents_file = _file(folder, "documents", "docs")
    topics_file = _file(folder, "topics", "queries")
    qrels_file = _file(folder, "qrels")
    documents = _documents(documents_file)
    return judged_set(
        folder.name,
        documents,
        _topics(topics_file),
        _trec_judgements(qrels_file),
        language=language,
        kind="trec",
        **digests([documents_file, topics_file, qrels_file], folder),
    )


def write_run(path: Path, run: Mapping[str, Sequence[str]], tag: str) -> None:
    """Write a TREC run file: query id, Q0, document id, rank, score, tag.

    The score is the number of hits minus the rank plus 1, so it falls strictly. trec_eval sorts by
    score and breaks ties by document id, descending; Corral breaks them ascending. The judged order
    must be the order that a user sees, so the file has no ties.

    Args:
        run: Document ids by query id, best first.
        tag: Name of the run, one word.
    """
    lines = [
        f"{query_id} Q0 {document_id} {rank} {len(ranked) - rank + 1} {tag}\n"
        for query_id, ranked in run.items()
        for rank, document_id in enumerate(ranked, start=1)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")


def _file(folder: Path, *beginnings: str) -> Path:
    found = [path for name in beginnings for path in sorted(folder.glob(f"{name}.*"))]
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        wanted = " or ".join(f"{name}.*" for name in beginnings)
        raise InvalidRequest(f"{folder}: expected one file {wanted}; found: {names}.")
    return found[0]


def _documents(path: Path) -> dict[str, str]:
    texts = Texts()
    if path.suffix in {".jsonl", ".json"}:
        for where, row in read_json_lines(path):
            named = row.get("title") if "text" in row or "contents" in row or "body" in row else ""
            title = text_field({"title": named or ""}, ("title",), where)
            text = f"{title} {text_field(row, TEXTS, where)}".strip()
            texts.put(text_field(row, IDS, where), text, where)
        return dict(texts)
    for where, found in _elements(list(read_lines(path)), _DOC, "<DOC>", "document"):
        named = _DOCNO.search(found[1])
        if named is None:
            raise InvalidRequest(f"{where}: <DOCNO> is missing.")
        body = _TAG.sub(" ", _DOCNO.sub(" ", found[1]))
        texts.put(named[1], " ".join(unescape(body).split()), where)
    return dict(texts)


def _topics(path: Path) -> dict[str, str]:
    texts = Texts()
    if path.suffix in {".jsonl", ".json"}:
        for where, row in read_json_lines(path):
            texts.put(text_field(row, IDS, where), text_field(row, TEXTS, where), where)
        return dict(texts)
    lines = list(read_lines(path))
    tops = _elements(lines, _TOP, "<top>", "topic")
    for where, top in tops:
        named, title = _NUM.search(top[1]), _TITLE.search(top[1])
        if named is None or title is None:
            raise InvalidRequest(f"{where}: <num> or <title> is missing.")
        texts.put(named[1], " ".join(title[1].split()), where)
    for where, line in lines if not tops else []:
        identifier, tab, text = line.partition("\t")
        if not tab:
            raise InvalidRequest(f"{where}: expected an id, a tab and a query.")
        texts.put(identifier.strip(), text.strip(), where)
    return dict(texts)


def _elements(
    lines: Sequence[tuple[str, str]], kind: re.Pattern[str], tag: str, what: str
) -> list[tuple[str, re.Match[str]]]:
    """Return the elements of a file, with place and number.

    Raises:
        InvalidRequest: A tag opens within another, or is not closed.
    """
    whole = "\n".join(line for _, line in lines)
    begins = list(accumulate((len(line) + 1 for _, line in lines), initial=0))

    def place(one: re.Match[str]) -> str:
        return lines[bisect_right(begins, one.start()) - 1][0]

    found = list(kind.finditer(whole))
    closed = {one.start() for one in found}
    for one in re.finditer(tag, whole, re.IGNORECASE):
        if one.start() not in closed:
            raise InvalidRequest(f"{place(one)}: {tag} is not closed, or the one before is not.")
    return [(f"{place(one)}, {what} {number}", one) for number, one in enumerate(found, start=1)]


def _trec_judgements(path: Path) -> Iterator[Judgement]:
    for where, line in read_lines(path):
        fields = line.split()
        relevance = relevance_of(fields[3]) if len(fields) == 4 else None
        if relevance is None:
            raise InvalidRequest(
                f"{where}: expected query id, an unused column, document id and an integer."
            )
        yield Judgement(fields[0], fields[2], relevance, where)
