"""Detect the type of a file by its first bytes, and by its name or declared type otherwise."""

from __future__ import annotations

import codecs
import io
import re
import zipfile
from pathlib import Path, PurePosixPath
from typing import IO

from corral.api.errors import InvalidRequest
from corral.providers.ingestion.read import compression

TEXT = "text/plain"
MARKDOWN = "text/markdown"
HTML = "text/html"
CSV = "text/csv"
TSV = "text/tab-separated-values"
JSON = "application/json"
NOTEBOOK = "application/x-ipynb+json"
MAIL = "message/rfc822"
PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
ODS = "application/vnd.oasis.opendocument.spreadsheet"
ODT = "application/vnd.oasis.opendocument.text"
ODP = "application/vnd.oasis.opendocument.presentation"
RTF = "application/rtf"
XLS = "application/vnd.ms-excel"
EPUB = "application/epub+zip"
MSG = "application/vnd.ms-outlook"
ZIP = "application/zip"
PNG = "image/png"
JPEG = "image/jpeg"
TIFF = "image/tiff"
WEBP = "image/webp"

VTT = "text/vtt"
SRT = "text/x-subrip"
SUBTITLES = (VTT, SRT)

PARQUET = "application/vnd.apache.parquet"
"""A table with one document per row; it is never read as a single text."""
PARQUET_MARK = b"PAR1"

COMPOUND_FILE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""The first bytes of an encrypted Office file, and of one from Office 2003 or earlier."""

PICTURES = (PNG, JPEG, TIFF, WEBP)
"""Pictures, which are read by text recognition."""

BINARY = (PDF, DOCX, PPTX, XLSX, ODS, ODT, ODP, RTF, XLS, EPUB, MSG, ZIP, *PICTURES)
"""Types that can only be read from bytes, not from text."""

CONTAINERS = (MAIL, MSG, ZIP)
"""Formats that contain other documents."""

TITLED = (MARKDOWN, HTML, EPUB, MAIL, MSG, NOTEBOOK)
"""Formats that contain a title. Other documents get the name of their file as title."""

SUFFIXES: dict[str, str] = {
    ".txt": TEXT, ".text": TEXT, ".log": TEXT, ".rst": "text/x-rst",
    ".adoc": "text/asciidoc", ".asciidoc": "text/asciidoc", ".org": "text/org",
    ".tex": "text/x-tex", ".ltx": "text/x-tex", ".vtt": VTT, ".srt": SRT,
    ".md": MARKDOWN, ".markdown": MARKDOWN, ".html": HTML, ".htm": HTML, ".xhtml": HTML,
    ".pdf": PDF, ".docx": DOCX, ".pptx": PPTX, ".xlsx": XLSX, ".xlsm": XLSX, ".xls": XLS,
    ".ods": ODS, ".odt": ODT, ".odp": ODP, ".rtf": RTF, ".epub": EPUB, ".eml": MAIL,
    ".msg": MSG, ".zip": ZIP,
    ".csv": CSV, ".tsv": TSV, ".json": JSON,
    ".ipynb": NOTEBOOK, ".jsonl": "application/jsonl", ".ndjson": "application/jsonl",
    ".xml": "application/xml", ".yaml": "application/yaml", ".yml": "application/yaml",
    ".toml": "application/toml", ".sql": "application/sql",
    ".py": "text/x-python", ".pyi": "text/x-python", ".js": "text/javascript",
    ".mjs": "text/javascript", ".cjs": "text/javascript", ".jsx": "text/javascript",
    ".ts": "text/x-typescript", ".mts": "text/x-typescript", ".tsx": "text/x-tsx",
    ".go": "text/x-go", ".rs": "text/x-rust", ".java": "text/x-java", ".c": "text/x-c",
    ".h": "text/x-c", ".cc": "text/x-c++", ".cpp": "text/x-c++", ".cxx": "text/x-c++",
    ".hh": "text/x-c++", ".hpp": "text/x-c++", ".cs": "text/x-csharp", ".rb": "text/x-ruby",
    ".php": "text/x-php", ".sh": "text/x-shellscript", ".bash": "text/x-shellscript",
}  # fmt: skip
"""MIME types by file name suffix, for files and URLs."""

_SIGNATURES = {
    b"GIF8": "a picture", b"RIFF": "a sound or a film",
    b"OggS": "a sound or a film", b"ID3": "a sound", b"fLaC": "a sound",
    b"\x1aE\xdf\xa3": "a film", b"\x1f\x8b": "a compressed file", b"BZh": "a compressed file",
    b"\xfd7zXZ": "a compressed file", b"7z\xbc\xaf": "an archive", b"Rar!": "an archive",
    b"\x28\xb5\x2f\xfd": "a compressed file", b"\x7fELF": "a program",
    b"SQLite format 3\0": "a database", b"%!PS": "a PostScript file", b"<svg": "a picture",
    PARQUET_MARK: "a Parquet table",
}  # fmt: skip
_SIGNED = {
    b"{\\rtf": RTF, b"\x89PNG": PNG, b"\xff\xd8\xff": JPEG, b"II*\0": TIFF,
    b"MM\0*": TIFF,
}  # fmt: skip
_ARCHIVE = (b"PK\3\4", b"PK\5\6")
_OPEN = ("", TEXT, MARKDOWN)
"""Types that may turn out to be web pages."""
_PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*+<(?:!doctype\s+html|html)\b",
    re.IGNORECASE | re.DOTALL,
)  # `*+` is possessive: backtracking over every grouping of comments would take forever.
_CELLS = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"(?:cells|worksheets|metadata|nbformat\w*)"\s*:')
_VTT = re.compile(rb"(?:\xef\xbb\xbf)?WEBVTT(?:[ \t\r\n]|$)")
_HEADER = re.compile(rb"([A-Za-z][A-Za-z-]*):[ \t]*\S|[ \t]+\S")
_MAIL = {b"from", b"to", b"subject", b"date", b"received", b"message-id", b"mime-version"}
_HEAD = 4096
_CONTROLS = bytes({*range(32), 127} - {*b"\t\n\v\f\r\b\x1b"})
_MAX_CONTROL_SHARE = 0.02
"""Maximum share of control characters in a text. In random bytes it is a tenth.

Escapes (terminal logs) and backspaces (old manuals) do not count."""
_PRIVATE_KEY = re.compile(rb"^-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY", re.MULTILINE)


def type_of(filename: str) -> str | None:
    """Return the MIME type of a file by its name; None if the suffix is unknown.

    The suffix of a compressed file is ignored: `notes.md.gz` is Markdown.
    """
    path = PurePosixPath(filename.lower())
    path = path.with_suffix("") if path.suffix in compression.SUFFIXES else path
    return SUFFIXES.get(path.suffix)


def type_of_table(data: bytes, named: str) -> str:
    """Return the MIME type of a table: Parquet by its first bytes, else the type from `detected`.

    Raises:
        InvalidRequest: This type of file cannot be read.
    """
    return PARQUET if data.startswith(PARQUET_MARK) else detected(data, named)


def detected(data: bytes, named: str, charset: str | None = None) -> str:
    """Return the MIME type of a file by its bytes, or else the type that its sender declares.

    Args:
        data: The file.
        named: The type that the sender declares; "" if none.
        charset: The charset that the sender declares; None if none.

    Raises:
        InvalidRequest: This type of file cannot be read (`field` is then "mime_type"), or the bytes
            do not fit the declared type.
    """
    found = stated(data, named)
    if found:
        return found
    if named in BINARY:
        raise InvalidRequest(
            f"The file cannot be read as {named}: it does not begin like one.",
            hint="It is damaged or has another format: check that it opens elsewhere.",
            field="content",
        )
    marks = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE
    is_wide = data.startswith(marks) or (charset or "").startswith(("utf-16", "utf16", "utf_16"))
    if b"\0" in data[:_HEAD] and not is_wide:
        raise unsupported("The file is not text: it holds zero bytes")
    if not named and not is_wide and _is_noise(data[:_HEAD]):
        raise unsupported("The file is not text: it holds control characters")
    return named or _kind_of_text(data[:_HEAD])


def stated(data: bytes, named: str) -> str:
    """Return the MIME type that the bytes of a file reveal; "" if they leave it open.

    A web page is recognized even if it is declared as text or Markdown, and a notebook even if it
    is declared as text or JSON.

    Raises:
        InvalidRequest: This type of file cannot be read, or the file is a broken archive.
    """
    found = _signed(data, named)
    if not found and named in ("", TEXT, JSON) and _is_notebook(data):
        return NOTEBOOK
    if not found and named in ("", TEXT) and _VTT.match(data):
        return VTT
    is_page = not found and named in _OPEN and _PAGE.match(data[:_HEAD])
    return HTML if is_page else found


def type_in(path: Path) -> str:
    """Return the MIME type of a file by its content, as `type_in_file` does."""
    with path.open("rb") as file:
        return type_in_file(file)


def type_in_file(file: IO[bytes]) -> str:
    """Return the MIME type of an open file by its content.

    Reads the beginning of the file, unpacked if it is compressed, and the names in an archive.

    Raises:
        InvalidRequest: This type of file cannot be read, or the file is damaged or a private key.
        OSError: The file cannot be read from disk.
    """
    head = file.read(_HEAD)
    if head.startswith(_ARCHIVE):
        return _packed(file, "")
    if compression.is_compressed(head):
        file.seek(0)
        head = compression.beginning(file, _HEAD)
    if head.startswith(_ARCHIVE):
        raise unsupported("The file is a compressed archive")
    if head.startswith(COMPOUND_FILE):
        raise unsupported("The file is an Office file of before 2007, or an installer")
    if _PRIVATE_KEY.search(head):
        raise unsupported("The file is a private key")
    return detected(head, "")


def unsupported(what: str) -> InvalidRequest:
    """Return the error for a file of an unsupported type."""
    known = ", ".join(["text/*", JSON, NOTEBOOK, MAIL, *BINARY])
    return InvalidRequest(
        f"{what}.", hint=f"Supported: {known}. Or send the text itself.", field="mime_type"
    )


def _signed(data: bytes, named: str) -> str:
    """Return the type of a file by its first bytes; "" if they are unknown."""
    if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:5] == b"%PDF-" or (
        named == PDF and b"%PDF-" in data[:1024]
    ):
        return PDF
    for signature, kind in _SIGNED.items():
        if data.startswith(signature):
            return kind
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return WEBP
    if data.startswith(_ARCHIVE):
        return _packed(io.BytesIO(data), named)
    if data[257:262] == b"ustar":
        raise unsupported("The file is an archive")
    if data.startswith(COMPOUND_FILE):
        return named if named in {DOCX, PPTX, XLSX, XLS, MSG} else _compound(data)
    for signature, what in _SIGNATURES.items():
        if data.startswith(signature):
            raise unsupported(f"The file is {what}")
    return ""


def _is_noise(head: bytes) -> bool:
    """Return True if too many bytes are control characters."""
    return len(head) - len(head.translate(None, _CONTROLS)) > len(head) * _MAX_CONTROL_SHARE


def _is_notebook(data: bytes) -> bool:
    """Return True if JSON begins with a key of a notebook and has the key `nbformat`."""
    return _CELLS.match(data) is not None and b'"nbformat"' in data[:_HEAD] + data[-_HEAD:]


def _packed(file: IO[bytes], named: str) -> str:
    """Return the type of a ZIP archive by the names in it."""
    try:
        with zipfile.ZipFile(file) as archive:
            names, says = set(archive.namelist()), b""
            if "mimetype" in names:
                with archive.open("mimetype") as entry:  # It could be of any size.
                    says = entry.read(100)
    except Exception as error:  # zipfile may raise any exception for a broken archive.
        raise InvalidRequest(
            f"The archive cannot be read ({type(error).__name__}).",
            hint="It may be truncated: check that it opens elsewhere.",
            field="content",
        ) from error
    for kind in (EPUB, ODS, ODT, ODP):
        if says.strip() == kind.encode():
            return kind
    if "_rels/.rels" in names:
        folders = {name.partition("/")[0] for name in names}
        found = {"word": DOCX, "ppt": PPTX, "xl": XLSX}
        kinds = [kind for folder, kind in found.items() if folder in folders]
        if kinds or named in found.values():
            return kinds[0] if kinds else named
    if "[Content_Types].xml" in names or named not in ("", ZIP, *_OPEN):
        raise unsupported("The file is an archive")
    return ZIP


def _compound(data: bytes) -> str:
    """Return the type of an Office 2003, Outlook or encrypted file by the names of its streams."""
    if "__properties_version1.0".encode("utf-16-le") in data:
        return MSG
    if "Workbook".encode("utf-16-le") in data or "Book".encode("utf-16-le") in data:
        return XLS
    return DOCX


def _kind_of_text(head: bytes) -> str:
    if _PAGE.match(head):
        return HTML
    names = set()
    for line in head.splitlines():
        header = _HEADER.match(line)
        if not header:
            break
        names.add((header[1] or b"").lower())
    return MAIL if b"from" in names and len(names & _MAIL) > 2 else TEXT
