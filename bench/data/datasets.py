"""Judged sets by folder or name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from corral.api.errors import InvalidRequest
from corral.bench.data.beir import is_beir, read_beir
from corral.bench.data.judged import JudgedSet, language_of, limited
from corral.bench.data.miniature import MINIATURE, miniature_sets
from corral.bench.data.named_sets import PREFIX, read_named
from corral.bench.data.trec import is_trec, read_trec


def read_sets(
    sources: Sequence[str],
    *,
    languages: Mapping[str, str] | None = None,
    split: str | None = None,
    max_documents: int | None = None,
    seed: int = 0,
) -> list[JudgedSet]:
    """Return the judged sets that are named, each checked.

    Args:
        sources: Folders in BEIR layout or with TREC files, `ir_datasets:NAME`, or `miniature` for
            the seeded sets that the project makes itself.
        languages: By name of a set, or under "" for all; `language_of` says what else decides.
        split: For BEIR folders, the judgements to use.
        max_documents: As `limited` takes it.
        seed: For what `limited` draws.

    Raises:
        InvalidRequest: One is missing, malformed or contradictory (file and line), or two have one
            name.
        MissingDependency, Unavailable: A public set cannot be had.
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
