"""Files on disk as documents: which are taken, under which ids, and how their text is decoded."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from corral.providers.ingestion.detecting import BINARY, SUFFIXES
from corral.server.command_line.folders import DEFAULT_SELECTION, Selection, walk
from corral.server.command_line.transport import BAD_INPUT, JSON, CommandError

BINARY_TYPES = {suffix: kind for suffix, kind in SUFFIXES.items() if kind in BINARY}
TEXT_TYPES = {
    suffix: kind for suffix, kind in SUFFIXES.items() if kind not in BINARY and suffix != ".log"
}
"""MIME type by suffix; logs only if asked for. Binary formats travel as `data:` URIs."""

_TITLED = {".md", ".markdown", ".html", ".htm", ".xhtml", ".epub", ".eml"}
"""Formats with a title: the server takes it from there. Others get their file's name."""

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
        source: Its path as it was named.
        size: Bytes.
    """

    path: Path
    document_id: str
    source: str
    size: int

    @property
    def origin(self) -> str:
        """What tells it from files of the same document id elsewhere; says nothing to others."""
        return origin_of(self.path)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How files are read.

    Attributes:
        as_text: Patterns of names that are plain text, whatever their suffix.
        encoding: Of all text files; None finds it out.
        max_characters: Of one document, as the server says; None where it does not.
        max_body_mib: Of one request, as the server says; None where it does not.
        selection: Which files of a folder go in.
        acl: Tokens that open the documents; none for the vector DB's default.
    """

    as_text: tuple[str, ...] = ()
    encoding: str | None = None
    max_characters: int | None = None
    max_body_mib: float | None = None
    selection: Selection = DEFAULT_SELECTION
    acl: tuple[str, ...] = ()

    def mime_type(self, path: Path) -> str | None:
        """Return the type of a file by its name; None where it is not taken."""
        if any(fnmatch(path.name, pattern) for pattern in self.as_text):
            return "text/plain"
        suffix = path.suffix.lower()
        return TEXT_TYPES.get(suffix) or BINARY_TYPES.get(suffix)


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
                    hint="Name the folder that holds both.",
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
    mime_type = options.mime_type(file.path) or "text/plain"
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
    metadata = {"source": file.source}
    if file.path.suffix.lower() not in _TITLED:
        metadata["title"] = file.path.stem
    if data.lstrip()[:5] == b"%PDF-":
        mime_type = BINARY_TYPES[".pdf"]
    content: str | JSON
    if mime_type in BINARY_TYPES.values():
        content = {"uri": f"data:{mime_type};base64,{base64.b64encode(data).decode('ascii')}"}
    else:
        content = _text(file, data, options, report)
    return {
        "document_id": file.document_id,
        "content": content,
        "mime_type": mime_type,
        "metadata": metadata,
        "origin": file.origin,
        **({"acl": [*options.acl]} if options.acl else {}),
    }


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
    known = options.mime_type(path) is not None
    if known and not path.is_file():  # a broken link, a pipe
        report.failed.append((path.as_posix(), "not a regular file"))
    elif known:
        yield SourceFile(path, document_id, path.as_posix(), path.stat().st_size)
    elif named:
        types = " ".join([*TEXT_TYPES, *BINARY_TYPES])
        reason = f"unknown type; known: {types}. If it is text: --as-text {path.name!r}"
        report.failed.append((path.as_posix(), reason))
    else:
        report.skipped.append((path.as_posix(), f"type {path.suffix or 'without suffix'}"))


def _most_bytes(options: ReadOptions, file: SourceFile) -> float:
    """Return how large a file can be and still fit into a request."""
    if options.max_body_mib is None:
        return float("inf")
    binary = options.mime_type(file.path) in BINARY_TYPES.values()
    return options.max_body_mib * MIB * (0.75 if binary else 1)  # base64 makes four bytes of three


def _text(file: SourceFile, data: bytes, options: ReadOptions, report: Report | None) -> str:
    encoding, certain = (options.encoding, True) if options.encoding else _encoding(data, file)
    try:
        text = data.decode(encoding).removeprefix("\ufeff")
    except (UnicodeDecodeError, LookupError):
        raise BadFileError(f"not text in {encoding}; name its encoding with --encoding") from None
    most = options.max_characters
    if most is not None and len(text) > most:
        raise BadFileError(
            f"its {len(text):,} characters are more than one document may have "
            f"(rag.document_limits.max_characters is {most:,})"
        )
    if report is not None and not certain:
        report.notes.append(f"{file.source}: read as {encoding}; --encoding names another")
    return text


def _encoding(data: bytes, file: SourceFile) -> tuple[str, bool]:
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
        declared = _DECLARED.search(data[:2048]) if file.path.suffix.lower() in _TITLED else None
        return (declared[1].decode("ascii"), True) if declared else ("windows-1252", False)
    return "utf-8", True


def _wide(data: bytes) -> str:
    """Return which UTF-16 a text with zeros is."""
    zeros = data[::2].count(0), data[1::2].count(0)
    if len(data) % 2 == 0 and min(zeros) == 0 and max(zeros) * 6 > len(data):
        return "utf-16-be" if zeros[0] else "utf-16-le"
    raise SkippedFileError("binary")
