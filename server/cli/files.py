"""Files on disk as documents: selection, ids and decoding."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corral.api.errors import InvalidRequest
from corral.api.reader import takes
from corral.api.vector_dbs import SplitOn
from corral.providers.ingestion.read import compression
from corral.providers.ingestion.read.detecting import (
    BINARY,
    CONTAINERS,
    HTML,
    NOTEBOOK,
    PARQUET,
    PARQUET_MARK,
    PICTURES,
    TEXT,
    stated,
    type_in,
    type_of,
)
from corral.providers.ingestion.read.encodings import encoding_of
from corral.providers.ingestion.read.external import named_type
from corral.providers.ingestion.read.records import Columns
from corral.providers.sources.documents import file_metadata, skip_reason
from corral.providers.sources.walking import Selection, walk
from corral.server.cli.failures import BAD_INPUT, JSON, CommandError

_AS_BYTES = {*BINARY, *CONTAINERS, NOTEBOOK}
"""Formats to send as bytes; a notebook's JSON contains pictures that are not part of its text."""

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to ingest.

    Attributes:
        path: The file's path.
        document_id: The path relative to the given folder, in POSIX form: the same on every run and
            machine, so that a second run replaces documents.
        source: The path as given; displayed but never sent.
        size: Bytes.
        mime_type: By name, or by content if the name does not tell.
        changed_at: Time of the last change, in nanoseconds.
        document: The document of one row of the file; None: the file is the document.
    """

    path: Path
    document_id: str
    source: str
    size: int
    mime_type: str
    changed_at: int = 0
    document: JSON | None = None

    @property
    def origin(self) -> str:
        """A hash of the path, which differs between folders with files of the same document id."""
        return origin_of(self.path)


@dataclass(frozen=True, slots=True)
class Query:
    """A query with the rows to ingest.

    Attributes:
        sql: One SELECT statement.
        database: URL of the database; may refer to environment variables as `${env.NAME}`.
    """

    sql: str
    database: str


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for selecting, reading and storing files.

    Attributes:
        as_text: Patterns of names that are plain text, whatever their suffix or content.
        encoding: The encoding of all text files; None detects it.
        max_characters: The server's maximum for one document; None if unknown.
        max_body_mib: The server's maximum for one request; None if unknown.
        reader_types: MIME types that the server's configured readers take.
        include: Globs as in .gitignore, such as `docs/**/*.md`; empty takes all files.
        exclude: Globs of files to leave out.
        hidden: True to include files and folders with names that begin with a dot.
        no_ignore: True to include files that .gitignore excludes.
        acl: Tokens that may read the documents; empty for the vector DB's default.
        replace: True to replace documents with the same ids from other folders.
        metadata: Metadata of each document, besides its source and title.
        title: Title of a single file; None takes the title in it, else its name.
        chunk_size_in_tokens: Maximum tokens per chunk; None takes the vector DB's.
        overlap_in_tokens: Tokens repeated from the previous chunk; None takes the vector DB's.
        records: Columns that make a document of each row of a table; None: a file is a document.
        query: The rows, instead of files.
        pictures: True to include pictures in folders; the server recognizes their text.
        split_on: Text at which chunks end, "" for none, or a level of headings; None takes the
            vector DB's.
    """

    as_text: tuple[str, ...] = ()
    encoding: str | None = None
    max_characters: int | None = None
    max_body_mib: float | None = None
    reader_types: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hidden: bool = False
    no_ignore: bool = False
    pictures: bool = False
    acl: tuple[str, ...] = ()
    replace: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    title: str | None = None
    chunk_size_in_tokens: int | None = None
    overlap_in_tokens: int | None = None
    split_on: SplitOn | None = None
    records: Columns | None = None
    query: Query | None = None

    @property
    def selection(self) -> Selection:
        """The selection rules for files of a folder."""
        return Selection(self.include, self.exclude, self.hidden, self.no_ignore, self.as_text)

    def is_text(self, path: Path) -> bool:
        """Return True if `as_text` makes a file plain text."""
        return self.selection.is_text(path.name)

    def for_reader(self, name: str) -> bool:
        """Return True if a file with this name needs a reader that the server has configured."""
        return not type_of(name) and takes(self.reader_types, named_type(name))

    def mime_type(self, path: Path) -> str:
        """Return the type of a file by its name, else by its content.

        Raises:
            SkippedFileError: Corral does not read this kind of file.
        """
        named = TEXT if self.is_text(path) else type_of(path.name)
        if named:
            return named
        if not path.is_file():
            raise SkippedFileError("not a regular file")
        if self.for_reader(path.name):
            return named_type(path.name)
        try:
            if self.records and _is_parquet(path):
                return PARQUET
            return type_in(path)
        except InvalidRequest as error:
            reason = skip_reason(error)
            more = "; --records takes its rows" if reason == "a Parquet table" else ""
            raise SkippedFileError(f"{reason}{more}") from None
        except OSError:
            return TEXT  # reading it raises the error


DEFAULT_OPTIONS = ReadOptions()


@dataclass(slots=True)
class Report:
    """The result of an ingest: documents stored and unchanged, and (file, reason) of all others.

    `notes` list unreadable parts and guesses, and the server's notes.
    """

    documents: int = 0
    unchanged: int = 0
    size: int = 0
    seconds: float = 0.0
    skipped: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def origin_of(path: Path) -> str:
    """Return a hash of a file's path; the file need not exist."""
    return hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(PARQUET_MARK)) == PARQUET_MARK


class SkippedFileError(Exception):
    """A file to skip; the message says why."""


class BadFileError(Exception):
    """A file that cannot be ingested; the message says why."""


def collect(
    paths: Sequence[Path], report: Report, options: ReadOptions = DEFAULT_OPTIONS
) -> list[SourceFile]:
    """Return the files under these paths by document id; skipped files go to the report.

    Folders are searched by `walk` for files that Corral reads. A file that is given explicitly is
    always included, even if it is hidden, ignored, a link, or excluded by its name.

    Raises:
        CommandError: A path does not exist, or two files would get the same document id.
    """
    files: dict[str, SourceFile] = {}
    for given in paths:
        for file in _files_of(given, report, options):
            other = files.setdefault(file.document_id, file)
            if other is not file and os.path.realpath(other.path) != os.path.realpath(file.path):
                raise CommandError(
                    f"{other.source} and {file.source} would both be document "
                    f"{file.document_id!r}.",
                    hint="Pass the folder that contains both.",
                    exit_code=BAD_INPUT,
                )
    return sorted(files.values(), key=lambda file: file.document_id)


def within_limits(
    files: Sequence[SourceFile], report: Report, options: ReadOptions
) -> list[SourceFile]:
    """Return the files within the server's limits; larger files are failures in the report.

    Only files that may be too large are read.
    """
    accepted = []
    for file in files:
        try:
            if file.size > min(options.max_characters or file.size, _most_bytes(options, file)):
                read_document(file, options)
        except SkippedFileError:
            pass  # reported when the file is read
        except BadFileError as reason:
            report.failed.append((file.source, str(reason)))
            continue
        accepted.append(file)
    return accepted


def read_document(
    file: SourceFile, options: ReadOptions = DEFAULT_OPTIONS, report: Report | None = None
) -> JSON:
    """Return a file as a RAGDocument; guesses about it go to the report's notes.

    Raises:
        SkippedFileError: The file is empty, or binary despite its name.
        BadFileError: The file cannot be read or decoded, or exceeds the server's limits.
    """
    _check_size(file.size, file, options)
    if file.document is not None:
        return file.document
    try:
        data = compression.unpacked(file.path.read_bytes())
    except OSError as error:
        raise BadFileError(f"cannot be read: {error.strerror}") from None
    except InvalidRequest as error:
        raise BadFileError(f"{error.message} {error.hint}") from None
    _check_size(len(data), file, options)
    if not data.strip():
        raise SkippedFileError("empty")
    mime_type = _kind(file, data, options)
    metadata = {**file_metadata(file.document_id, mime_type), **options.metadata}
    if options.title is not None:
        metadata["title"] = options.title
    content: str | JSON
    if _goes_as_bytes(file, mime_type, options):  # it travels as a `data:` URI
        content = {"uri": f"data:{mime_type};base64,{base64.b64encode(data).decode('ascii')}"}
    else:
        content = decoded(file, data, mime_type, options, report)
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
    if options.for_reader(file.path.name) and not options.is_text(file.path):
        return file.mime_type
    mime_type = ""
    with suppress(InvalidRequest):  # the server reports files named as such
        mime_type = stated(data, file.mime_type)
    insisted = mime_type in (HTML, NOTEBOOK) and options.is_text(file.path)
    return file.mime_type if insisted else mime_type or file.mime_type


def _files_of(given: Path, report: Report, options: ReadOptions) -> Iterator[SourceFile]:
    if not given.exists():
        raise CommandError(f"{given} does not exist.", exit_code=BAD_INPUT)
    if given.is_file():
        yield from _wanted(given, given.name, report, options, named=True)
        return

    def unreadable(path: str, reason: str) -> None:
        report.failed.append((path, f"cannot be read: {reason}"))

    def skipped(path: str, reason: str) -> None:
        report.skipped.append((path, reason))

    for path, document_id in walk(given, options.selection, skipped, unreadable):
        yield from _wanted(path, document_id, report, options, named=False)


def _wanted(
    path: Path, document_id: str, report: Report, options: ReadOptions, *, named: bool
) -> Iterator[SourceFile]:
    """Yield the file if it should be ingested; otherwise report the reason."""
    source = path.as_posix()
    try:
        kind = options.mime_type(path)
        status = path.stat() if path.is_file() else None
    except SkippedFileError as reason:
        if named:
            report.failed.append((source, f"Corral does not read this kind: {reason}"))
        elif os.path.lexists(path):  # otherwise it was deleted after it was listed
            report.skipped.append((source, str(reason)))
        return
    except OSError:
        status = None
    if kind in PICTURES and not named and not options.pictures:
        report.skipped.append((source, "a picture; --pictures takes it"))
    elif status:
        yield SourceFile(path, document_id, source, status.st_size, kind, status.st_mtime_ns)
    elif os.path.lexists(path):  # a broken link, a pipe
        report.failed.append((source, "not a regular file"))


def _check_size(size: int, file: SourceFile, options: ReadOptions) -> None:
    """Raise BadFileError if this many bytes do not fit into a request."""
    if size > _most_bytes(options, file):
        raise BadFileError(
            f"its {size / MIB:,.1f} MiB are more than a request may have "
            f"(server.limits.max_body_mib is {options.max_body_mib:g})"
        )


def _most_bytes(options: ReadOptions, file: SourceFile) -> float:
    """Return the maximum size of a file that fits into a request, in bytes."""
    if options.max_body_mib is None:
        return float("inf")
    share = (
        0.75 if _goes_as_bytes(file, file.mime_type, options) else 1
    )  # base64 makes four bytes of three
    return options.max_body_mib * MIB * share


def _goes_as_bytes(file: SourceFile, mime_type: str, options: ReadOptions) -> bool:
    for_reader = options.for_reader(file.path.name) and not options.is_text(file.path)
    return mime_type in _AS_BYTES or for_reader


def decoded(
    file: SourceFile, data: bytes, kind: str, options: ReadOptions, report: Report | None
) -> str:
    """Return the text of a file; a guess about its encoding goes to the report's notes.

    Raises:
        BadFileError: The file cannot be decoded, or exceeds the server's limits.
    """
    try:
        guess = (options.encoding, True) if options.encoding else encoding_of(data, kind)
    except InvalidRequest:
        raise SkippedFileError("binary") from None
    encoding, certain = guess
    try:
        text = data.decode(encoding).removeprefix("\ufeff")
    except (UnicodeDecodeError, LookupError):
        raise BadFileError(f"not text in {encoding}; set its encoding with --encoding") from None
    if not text.strip():
        raise SkippedFileError("empty")
    most = options.max_characters
    if most is not None and len(text) > most:
        raise BadFileError(
            f"its {len(text):,} characters are more than one document may have "
            f"(rag.document_limits.max_characters is {most:,})"
        )
    if report is not None and not certain:
        report.notes.append(f"{file.source}: read as {encoding}; --encoding names another")
    return text
