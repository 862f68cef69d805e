"""Judged sets by folder or name; public ones through `ir_datasets`, which downloads them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corral.api.errors import InvalidRequest, MissingDependency, Unavailable
from corral.bench.data.judged import (
    JudgedSet,
    Judgement,
    Texts,
    judged_set,
    known_language,
    language_of,
    limited,
)
from corral.bench.data.miniature import MINIATURE, miniature_sets
from corral.bench.data.readers import is_beir, is_trec, read_beir, read_trec

PREFIX = "ir_datasets:"


def read_sets(
    sources: Sequence[str],
    *,
    languages: Mapping[str, str] | None = None,
    split: str | None = None,
    max_documents: int | None = None,
    seed: int = 0,
) -> list[JudgedSet]:
    """Return the named judged sets, checked.

    Args:
        sources: Folders in BEIR layout or with TREC files, `ir_datasets:NAME`, or `miniature` for
            the seeded sets that the project makes itself.
        languages: Languages by name of a set, or under "" for all; `language_of` has the rules.
        split: Judgements to use in BEIR folders.
        max_documents: As for `limited`.
        seed: Seed for `limited`.

    Raises:
        InvalidRequest: A set is missing, malformed or contradictory (file and line), or two sets
            have the same name.
        MissingDependency, Unavailable: A public set cannot be obtained.
    """
    given = languages or {}
    found = [each for one in sources for each in _read(one, given, split)]
    names = [judged.name for judged in found]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InvalidRequest(f"Two data sets are named {twice[0]!r}.", field="data")
    unused = sorted(given.keys() - {"", *names})
    if unused:
        raise InvalidRequest(
            f"A language is given for {unused[0]!r}, which is not a data set of this run.",
            hint=f"They are: {', '.join(names)}.",
            field="language",
        )
    return [limited(judged, max_documents, seed) for judged in found]


def _read(source: str, languages: Mapping[str, str], split: str | None) -> list[JudgedSet]:
    if source.startswith(PREFIX):
        name = source.removeprefix(PREFIX)
        return [read_named(name, languages.get(name.replace("/", "-")) or languages.get(""))]
    if source == MINIATURE and not Path(source).exists():
        return miniature_sets()
    folder = Path(source).expanduser().resolve()
    if not folder.is_dir():
        raise InvalidRequest(
            f"There is no folder {source}.",
            hint=f"Give a folder, {PREFIX}NAME, or {MINIATURE}.",
            field="data",
        )
    language = language_of(folder.name, languages)
    if is_beir(folder):
        return [read_beir(folder, language, split)]
    if is_trec(folder):
        return [read_trec(folder, language)]
    raise InvalidRequest(
        f"{folder} holds neither BEIR files nor TREC files.",
        hint="BEIR: corpus.jsonl, queries.jsonl, qrels/test.tsv. TREC: documents.*, topics.*, "
        "qrels.*.",
        field="data",
    )


def read_named(name: str, language: str | None = None) -> JudgedSet:
    """Return the set of a name, such as `beir/scifact/test`.

    A missing set is downloaded into the package's own folder; if a license must be accepted first,
    the error says so.

    Args:
        name: Name in the package's list.
        language: Language of the texts; None for the package's information, or else English.

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
        raise InvalidRequest(f"ir_datasets has no set {name!r}.", field="data") from None
    for what in ("docs", "queries", "qrels"):
        if not getattr(dataset, f"has_{what}")():
            raise InvalidRequest(f"{PREFIX}{name} has no {what}.", field="data")
    try:
        return _named_set(dataset, name, language)
    except (OSError, RuntimeError) as error:  # requests' errors are OSErrors
        raise Unavailable(f"{PREFIX}{name} cannot be loaded: {error}") from error


def _named_set(dataset: Any, name: str, language: str | None) -> JudgedSet:
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
