"""A judged set: documents, queries and relevance judgements, checked on creation."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from corral.api.errors import InvalidRequest
from corral.api.vector_dbs import LANGUAGES, language_name
from corral.api.wire import MAX_ID_LENGTH
from corral.bench.report.rows import DataSet

_RELEVANCE = re.compile(r"[-+]?[0-9]{1,9}")
LEAST_DOCUMENTS = 20
"""Minimum of --max-docs: with only ten documents, every ranking has all in its top ten."""


@dataclass(frozen=True, slots=True)
class JudgedSet:
    """Documents, queries and relevance judgements.

    Attributes:
        name: The name of the folder or of the public set.
        documents: Text by document id.
        queries: Text by query id; only queries with a judgement.
        qrels: Relevance by query id and document id; above 0 is relevant, more is better.
        language: English name, for keyword analysis.
        kind: `beir`, `trec`, `ir_datasets` or `miniature`.
        sha256: The digest of each file that was read, by its name in the folder.
        bytes: Size of these files together.
        cut: Documents that `limited` left out.
    """

    name: str
    documents: dict[str, str]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]
    language: str = "english"
    kind: str = "beir"
    sha256: dict[str, str] = field(default_factory=dict)
    bytes: int = 0
    cut: int = 0

    def row(self) -> DataSet:
        """Return the set as a row of a report."""
        return DataSet(
            name=self.name,
            kind=self.kind,
            language=self.language,
            documents=len(self.documents),
            queries=len(self.queries),
            judgements=sum(map(len, self.qrels.values())),
            sha256=self.sha256,
            bytes=self.bytes,
            query_texts=self.queries,
            cut=self.cut,
        )

    def fingerprint(self) -> str:
        """Return a hash of everything that determines a measurement on this set."""
        digest = hashlib.sha256()
        for part in (self.language, self.documents, self.queries, self.qrels):
            digest.update(json.dumps(part, sort_keys=True).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Judgement:
    """One line of a qrels file, with its location for messages."""

    query_id: str
    document_id: str
    relevance: int
    where: str


def judged_set(
    name: str,
    documents: dict[str, str],
    queries: Mapping[str, str],
    judgements: Iterable[Judgement],
    **more: Any,
) -> JudgedSet:
    """Return a checked set; `more` are further fields of `JudgedSet`.

    Raises:
        InvalidRequest: There are no documents, no judgements or no relevant ones, or judgements
            name unknown ids (the message has their number and the first) or contradict each other.
    """
    lines = list(judgements)
    if not documents or not lines:
        raise InvalidRequest(f"{name} has no {'judgements' if documents else 'documents'}.")
    _check_known(name, "query", queries, [(line.query_id, line.where) for line in lines])
    _check_known(name, "document", documents, [(line.document_id, line.where) for line in lines])
    qrels: dict[str, dict[str, int]] = {}
    for line in lines:
        if not queries[line.query_id].strip():
            raise InvalidRequest(f"{line.where}: query {line.query_id!r} is judged but blank.")
        known = qrels.setdefault(line.query_id, {})
        if known.setdefault(line.document_id, line.relevance) != line.relevance:
            raise InvalidRequest(
                f"{line.where}: query {line.query_id!r} and document {line.document_id!r} were "
                f"judged {known[line.document_id]} before."
            )
    if not any(value > 0 for judged in qrels.values() for value in judged.values()):
        raise InvalidRequest(f"{name}: no judgement is above 0, so there is nothing to find.")
    asked = {key: queries[key] for key in queries if key in qrels}
    return JudgedSet(name, documents, asked, qrels, **more)


def _check_known(
    name: str, what: str, known: Mapping[str, str], used: list[tuple[str, str]]
) -> None:
    unknown = [(one, where) for one, where in used if one not in known]
    if unknown:
        first, where = unknown[0]
        raise InvalidRequest(
            f"{name}: {len(unknown)} of {len(used)} judgements name an unknown {what} id, the "
            f"first {first!r} ({where}).",
            hint="Judgements, queries and documents must belong to one set.",
        )


def checked_id(identifier: str, where: str) -> str:
    """Return an id that Corral can store and a TREC run file can hold.

    Raises:
        InvalidRequest: The id is empty, too long, not UTF-8, or has white space or NUL.
    """
    fits = 1 <= len(identifier) <= MAX_ID_LENGTH
    fits = fits and identifier.encode(errors="ignore").decode() == identifier
    if not fits or "\0" in identifier or identifier.split() != [identifier]:
        raise InvalidRequest(
            f"{where}: the id {identifier[:40]!r} is empty, longer than {MAX_ID_LENGTH} "
            "characters, not UTF-8, or holds white space, which a TREC run cannot."
        )
    return identifier


def relevance_of(text: str) -> int | None:
    """Return a relevance from a qrels file; None unless it is an integer of at most 9 digits."""
    return int(text) if _RELEVANCE.fullmatch(text) else None


class Texts(dict[str, str]):
    """Texts by id; rejects a repeated id and names both places."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, str] = {}

    def put(self, identifier: str, text: str, where: str) -> None:
        """Add a text.

        Raises:
            InvalidRequest: The id is repeated or invalid.
        """
        if identifier in self:
            raise InvalidRequest(
                f"{where}: the id {identifier!r} appears already ({self._seen[identifier]})."
            )
        self._seen[identifier] = where
        self[checked_id(identifier, where)] = text


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (`file:line`, line) for every line that is not blank.

    Raises:
        InvalidRequest: The file is missing, or is not UTF-8.
    """
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise InvalidRequest(f"{path} does not exist.") from None
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path} is not UTF-8: {error.reason}, byte {error.start}.") from error
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"{path}:{number}", line.rstrip("\r")


def read_json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (`file:line`, object) for every line that is not blank.

    Raises:
        InvalidRequest: A line is not a JSON object; the message has file and line.
    """
    for where, line in read_lines(path):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"{where}: not JSON: {error}.") from error
        if not isinstance(row, dict):
            raise InvalidRequest(f"{where}: {type(row).__name__}, not an object.")
        yield where, row


def text_field(row: Mapping[str, Any], names: tuple[str, ...], where: str) -> str:
    """Return the first of these fields in a row, as text; an id may be a number.

    Raises:
        InvalidRequest: The row has none of them, or the value is not text.
    """
    for name in names:
        value = row.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, str):
            return value
        if value is not None:
            raise InvalidRequest(f"{where}: {name} is {type(value).__name__}, not text.")
    raise InvalidRequest(f"{where}: {' or '.join(map(repr, names))} is missing.")


def digests(paths: Iterable[Path], folder: Path) -> dict[str, Any]:
    """Return `sha256` and `bytes` of files, as fields of a `JudgedSet`."""
    contents = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    return {"sha256": hashes, "bytes": sum(map(len, contents.values()))}


def limited(judged: JudgedSet, max_documents: int | None, seed: int) -> JudgedSet:
    """Return a set of at most `max_documents` documents, with all judged ones of its queries.

    Queries are taken in a seeded order while their judged documents fit; the rest is a seeded
    sample. Fewer documents make every query easier, so compare figures of limited sets only with
    each other.

    Raises:
        InvalidRequest: Not even one query fits, or `max_documents` is below `LEAST_DOCUMENTS`.
    """
    if max_documents is not None and max_documents < LEAST_DOCUMENTS:
        raise InvalidRequest(
            f"--max-docs {max_documents} is too small for one measurement: any order of fewer than "
            f"{LEAST_DOCUMENTS} documents looks good.",
            field="max_docs",
        )
    if max_documents is None or len(judged.documents) <= max_documents:
        return judged
    rng = np.random.default_rng(seed)
    kept, needed = _fitting(judged, max_documents, rng)
    if not any(value > 0 for key in kept for value in judged.qrels[key].values()):
        least = min(len(judged.qrels[key]) for key in judged.queries)
        raise InvalidRequest(
            f"--max-docs {max_documents} is too small for one measurement on {judged.name}: a "
            f"query has at least {least} judged documents.",
            field="max_docs",
        )
    others = [key for key in judged.documents if key not in needed]
    more = rng.permutation(len(others))[: max_documents - len(needed)]
    needed |= {others[number] for number in more}
    return replace(
        judged,
        documents={key: text for key, text in judged.documents.items() if key in needed},
        queries={key: text for key, text in judged.queries.items() if key in kept},
        qrels={key: found for key, found in judged.qrels.items() if key in kept},
        cut=len(judged.documents) - len(needed),
    )


def _fitting(judged: JudgedSet, most: int, rng: np.random.Generator) -> tuple[set[str], set[str]]:
    """Return queries in a random order as long as they fit, and the documents judged for them."""
    kept: set[str] = set()
    needed: set[str] = set()
    keys = list(judged.queries)
    for key in (keys[number] for number in rng.permutation(len(keys))):
        more = judged.qrels[key].keys() - needed
        if len(needed) + len(more) <= most:
            needed |= more
            kept.add(key)
    return kept, needed


def known_language(given: str) -> str:
    """Return the English name of a language.

    Raises:
        InvalidRequest: Corral does not know it.
    """
    try:
        return language_name(given)
    except ValueError as error:
        raise InvalidRequest(f"{error}.", field="language") from None


def language_of(name: str, given: Mapping[str, str]) -> str:
    """Return the language of a set: given for it, given for all (""), or in its name.

    A name that ends with a dash and a known two-letter code, such as `xquad-de`, has that language;
    any other is English.
    """
    chosen = given.get(name) or given.get("")
    if chosen:
        return known_language(chosen)
    code = name.rpartition("-")[2].casefold()
    return LANGUAGES[code] if "-" in name and len(code) == 2 and code in LANGUAGES else "english"
