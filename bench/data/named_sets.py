"""Public judged sets by name, through the package `ir_datasets`, which downloads them."""

from __future__ import annotations

import importlib
from typing import Any

from corral.api.errors import InvalidRequest, MissingDependency, Unavailable
from corral.bench.data.judged import JudgedSet, Judgement, Texts, judged_set, known_language

PREFIX = "ir_datasets:"


def read_named(name: str, language: str | None = None) -> JudgedSet:
    """Return the set of a name, such as `beir/scifact/test`.

    It is downloaded into the package's own folder when it is not there; some sets ask for a
    license to be accepted first, which is then the message.

    Args:
        name: As the package lists it.
        language: Of its texts; None takes what the package says, or English.

    Raises:
        MissingDependency: The package is not installed.
        InvalidRequest: The name is unknown, or the set lacks documents, queries or judgements.
        Unavailable: It cannot be downloaded.
    """
    try:
        ir_datasets = importlib.import_module("ir_datasets")
    except ModuleNotFoundError:
        command = "pip install 'corral-rag[ir-datasets]'"
        raise MissingDependency(f"{PREFIX}{name}", "ir-datasets", command) from None
    try:
        dataset = ir_datasets.load(name)
    except KeyError:
        raise InvalidRequest(f"ir_datasets knows no set {name!r}.", field="data") from None
    for what in ("docs", "queries", "qrels"):
        if not getattr(dataset, f"has_{what}")():
            raise InvalidRequest(f"{PREFIX}{name} has no {what}.", field="data")
    try:
        return _read(dataset, name, language)
    except (OSError, RuntimeError) as error:  # requests' errors are OSErrors
        raise Unavailable(f"{PREFIX}{name} cannot be loaded: {error}") from error


def _read(dataset: Any, name: str, language: str | None) -> JudgedSet:
    documents, queries = Texts(), Texts()
    for document in dataset.docs_iter():
        documents.put(document.doc_id, document.default_text(), f"{name}, documents")
    for query in dataset.queries_iter():
        queries.put(query.query_id, query.default_text(), f"{name}, queries")
    judgements = [
        Judgement(line.query_id, line.doc_id, line.relevance, f"{name}, qrels")
        for line in dataset.qrels_iter()
    ]
    spoken = language or dataset.docs_lang() or "english"
    return judged_set(
        name.replace("/", "-"),
        dict(documents),
        queries,
        judgements,
        language=known_language(spoken),
        kind="ir_datasets",
    )
