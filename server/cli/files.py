"""Files on disk as documents: which are taken, under which ids, and how their text is decoded."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from corral.api.errors import InvalidRequest
from corral.providers.ingestion.read.detecting import (
    BINARY,
    HTML,
    NOTEBOOK,
    SUFFIXES,
    TEXT,
    TITLED,
    stated,
    stated_in,
    type_of,
)
from corral.server.cli.failures import BAD_INPUT, JSON, CommandError
from corral.server.cli.folders import DEFAULT_SELECTION, Selection, walk

_LOG = ".log"
"""What is taken only if asked for."""

_AS_BYTES = {*BINARY, NOTEBOOK}
"""Formats to send as bytes; a notebook's JSON holds pictures, which are not part of its text."""

MIB = 1024 * 1024
_MARKS = (("utf-8-sig", b"\xef\xbb\xbf"), ("utf-16", b"\xff\xfe"), ("utf-16", b"\xfe\xff"))
_DECLARED = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?([\w-]{1,40})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to ingest.

    Attributes:
        path: Where it is.
        document_id: Its path relative to the folder that was named, in POSIX form: the same
            tomorrow and on another machine, so that a second run replaces instead of adding.
        source: Its path as it was named; shown here and sent nowhere.
        size: Bytes.
        mime_type: By its name, or its content where that says nothing.
        changed_at: When it was last changed, in nanoseconds.
    """

    path: Path
    document_id: str
    source: str
    size: int
    mime_type: str
    changed_at: int = 0

    @property
    def origin(self) -> str:
        """What tells it from files of the same document id elsewhere; says nothing to others."""
        return origin_of(self.path)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How files are read and stored.

    Attributes:
        as_text: Patterns of names that are plain text, whatever their suffix.
        encoding: Of all text files; None finds it out.
        max_characters: Of one document, as the server says; None where it does not.
        max_body_mib: Of one request, as the server says; None where it does not.
        selection: Which files of a folder go in.
        acl: Tokens that open the documents; none for the vector DB's default.
        replace: Whether documents of the same ids from other places are replaced.
        metadata: Metadata of each document, besides its source and title.
        title: Title of a single file; None takes the title in it, else its name.
        chunk_size: Maximum tokens per chunk; None takes the vector DB's.
        overlap: Tokens repeated from the previous chunk; None takes the vector DB's.
    """

    as_text: tuple[str, ...] = ()
    encoding: str | None = None
    max_characters: int | None = None
    max_body_mib: float | None = None
    selection: Selection = DEFAULT_SELECTION
    acl: tuple[str, ...] = ()
    replace: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    title: str | None = None
    chunk_size: int | None = None
    overlap: int | None = None

    def is_text(self, path: Path) -> bool:
        """Return True if a file is plain text because somebody says so."""
        return any(fnmatch(path.name, pattern) for pattern in self.as_text)

    def mime_type(self, path: Path) -> str | None:
        """Return the type of a file; None where it is not taken."""
        if self.is_text(path):
            return TEXT
        if path.suffix.lower() == _LOG:
            return None
        return type_of(path.name) or (stated_in(path) if path.is_file() else None)


DEFAULT_OPTIONS = ReadOptions()


@dataclass(slots=True)
class Report:
    """What an ingest did: documents stored and unchanged, and (file, reason) of all others.

    `notes` say what of a file could not be read or was guessed, and what the server has to say.
    """

    documents: int = 0
    unchanged: int = 0
    size: int = 0
    seconds: float = 0.0
    skipped: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def origin_of(path: Path) -> str:
    """Return what stands for the place of a file, which need not be there any more."""
    return hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()


class SkippedFileError(Exception):
    """A file that is passed over by intention; the message says why."""


class BadFileError(Exception):
    """A file that should have gone in and cannot; the message says why."""


def collect(
    paths: Sequence[Path], report: Report, options: ReadOptions = DEFAULT_OPTIONS
) -> list[SourceFile]:
    """Return the files under some paths, by document id; what is passed over goes to the report.

    Folders are searched as `folders.walk` does, for the types of file that are known. A file that
    is named itself is taken even when it is hidden, ignored or a link.

    Raises:
        CommandError: A path does not exist, or two files would get the same document id.
    """
    found: dict[str, SourceFile] = {}
    for given in paths:
        for file in _files_of(given, report, options):
            other = found.setdefault(file.document_id, file)
            if other is not file and os.path.realpath(other.path) != os.path.realpath(file.path):
                raise CommandError(
                    f"{other.source} and {file.source} would both be document "
                    f"{file.document_id!r}.",
                    hint="Pass the folder that contains both.",
                    exit_code=BAD_INPUT,
                )
    return sorted(found.values(), key=lambda file: file.document_id)


def within_limits(
    files: Sequence[SourceFile], report: Report, options: ReadOptions
) -> list[SourceFile]:
    """Return the files that a server takes; those that are too large are failures in the report.

    Only files that may be too large are read.
    """
    kept = []
    for file in files:
        try:
            if file.size > min(options.max_characters or file.size, _most_bytes(options, file)):
                read_document(file, options)
        except SkippedFileError:
            pass  # said when its turn comes
        except BadFileError as reason:
            report.failed.append((file.source, str(reason)))
            continue
        kept.append(file)
    return kept


def read_document(
    file: SourceFile, options: ReadOptions = DEFAULT_OPTIONS, report: Report | None = None
) -> JSON:
    """Return a file as the wire's RAGDocument; what is guessed about it is noted in the report.

    Raises:
        SkippedFileError: It is empty, or binary in spite of its name.
        BadFileError: It cannot be read or decoded, or is larger than the server takes.
    """
    if file.size > _most_bytes(options, file):
        raise BadFileError(
            f"its {file.size / MIB:,.1f} MiB are more than a request may have "
            f"(server.limits.max_body_mib is {options.max_body_mib:g})"
        )
    try:
        data = file.path.read_bytes()
    except OSError as error:
        raise BadFileError(f"cannot be read: {error.strerror}") from None
    if not data.strip():
        raise SkippedFileError("empty")
    mime_type = _kind(file, data, options)
    metadata: JSON = {"source": file.document_id}  # without the folders of this machine
    if mime_type not in TITLED:
        metadata["title"] = file.path.stem
    metadata |= options.metadata
    if options.title is not None:
        metadata["title"] = options.title
    content: str | JSON
    if mime_type in _AS_BYTES:  # it travels as a `data:` URI
        content = {"uri": f"data:{mime_type};base64,{base64.b64encode(data).decode('ascii')}"}
    else:
        content = _text(file, data, mime_type, options, report)
    return {
        "document_id": file.document_id,
        "content": content,
        "mime_type": mime_type,
        "metadata": metadata,
        "origin": file.origin,
        **({"acl": [*options.acl]} if options.acl else {}),
    }


def _kind(file: SourceFile, data: bytes, options: ReadOptions) -> str:
    """Return the MIME type of a file: what its bytes state, else what its name says."""
    found = ""
    with suppress(InvalidRequest):  # the server says so of what is named as such
        found = stated(data, file.mime_type)
    insisted = found in (HTML, NOTEBOOK) and options.is_text(file.path)
    return file.mime_type if insisted else found or file.mime_type


def _files_of(given: Path, report: Report, options: ReadOptions) -> Iterator[SourceFile]:
    if not given.exists():
        raise CommandError(f"{given} does not exist.", exit_code=BAD_INPUT)
    if given.is_file():
        yield from _wanted(given, given.name, report, options, named=True)
        return

    def skipped(path: str, reason: str) -> None:
        report.skipped.append((path, reason))

    def failed(path: str, reason: str) -> None:
        report.failed.append((path, reason))

    for path, document_id in walk(given, options.selection, skipped, failed):
        yield from _wanted(path, document_id, report, options, named=False)


def _wanted(
    path: Path, document_id: str, report: Report, options: ReadOptions, *, named: bool
) -> Iterator[SourceFile]:
    """Yield the file if it should be ingested; otherwise note why not in the report."""
    kind, source = options.mime_type(path), path.as_posix()
    try:
        found = path.stat() if path.is_file() else None
    except OSError:
        found = None
    if found and kind:
        yield SourceFile(path, document_id, source, found.st_size, kind, found.st_mtime_ns)
    elif not os.path.lexists(path):
        return  # deleted meanwhile
    elif kind:  # a broken link, a pipe
        report.failed.append((source, "not a regular file"))
    elif named:
        types = " ".join(suffix for suffix in SUFFIXES if suffix != _LOG)
        reason = f"unknown type; known: {types}. If it is text: --as-text {path.name!r}"
        report.failed.append((source, reason))
    else:
        report.skipped.append((source, f"type {path.suffix or 'without suffix'}"))


def _most_bytes(options: ReadOptions, file: SourceFile) -> float:
    """Return how large a file can be and still fit into a request."""
    if options.max_body_mib is None:
        return float("inf")
    share = 0.75 if file.mime_type in _AS_BYTES else 1  # base64 makes four bytes of three
    return options.max_body_mib * MIB * share


def _text(
    file: SourceFile, data: bytes, kind: str, options: ReadOptions, report: Report | None
) -> str:
    encoding, certain = (options.encoding, True) if options.encoding else _encoding(data, kind)
    try:
        text = data.decode(encoding).removeprefix("\ufeff")
    except (UnicodeDecodeError, LookupError):
        raise BadFileError(f"not text in {encoding}; set its encoding with --encoding") from None
    most = options.max_characters
    if most is not None and len(text) > most:
        raise BadFileError(
            f"its {len(text):,} characters are more than one document may have "
            f"(rag.document_limits.max_characters is {most:,})"
        )
    if report is not None and not certain:
        report.notes.append(f"{file.source}: read as {encoding}; --encoding names another")
    return text


def _encoding(data: bytes, kind: str) -> tuple[str, bool]:
    """Return the encoding of a text, and whether that is certain.

    By its mark, as UTF-8, as UTF-16 of which half the bytes are zero, as its HTML declares, and
    otherwise Windows-1252, as browsers do. Detectors that guess by frequencies took a short Latin-1
    text for Chinese when they were tried, and are surer of it than they should be.
    """
    for name, mark in _MARKS:
        if data.startswith(mark):
            return name, True
    if b"\0" in data:
        return _wide(data), False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        declared = _DECLARED.search(data[:2048]) if kind in TITLED else None
        return (declared[1].decode("ascii"), True) if declared else ("windows-1252", False)
    return "utf-8", True


def _wide(data: bytes) -> str:
    """Return which UTF-16 a text with zeros is."""
    zeros = data[::2].count(0), data[1::2].count(0)
    if len(data) % 2 == 0 and min(zeros) == 0 and max(zeros) * 6 > len(data):
        return "utf-16-be" if zeros[0] else "utf-16-le"
    raise SkippedFileError("binary")
