"""What a file is: by its first bytes, and by its name or type only where these do not say."""

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
"""Rows, which are documents of their own: no text is read of it as a whole."""
PARQUET_MARK = b"PAR1"

COMPOUND_FILE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""How an encrypted Office file begins, and one of Office 2003 and before."""

PICTURES = (PNG, JPEG, TIFF, WEBP)
"""Pictures: their text is recognized."""

BINARY = (PDF, DOCX, PPTX, XLSX, ODS, ODT, ODP, RTF, XLS, EPUB, MSG, ZIP, *PICTURES)
"""What is read of bytes alone."""

CONTAINERS = (MAIL, MSG, ZIP)
"""Formats that hold other documents."""

TITLED = (MARKDOWN, HTML, EPUB, MAIL, MSG, NOTEBOOK)
"""Formats that contain a title. Other documents take the name of their file as the title."""

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
"""File name suffix -> MIME type, for files and URLs."""

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
)  # `*+`: comments have one reading; tried in every grouping they would take forever
_CELLS = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"(?:cells|worksheets|metadata|nbformat\w*)"\s*:')
_VTT = re.compile(rb"(?:\xef\xbb\xbf)?WEBVTT(?:[ \t\r\n]|$)")
_HEADER = re.compile(rb"([A-Za-z][A-Za-z-]*):[ \t]*\S|[ \t]+\S")
_MAIL = {b"from", b"to", b"subject", b"date", b"received", b"message-id", b"mime-version"}
_HEAD = 4096
_CONTROLS = bytes({*range(32), 127} - {*b"\t\n\v\f\r\b\x1b"})
_MAX_CONTROL_SHARE = 0.02
"""Share of control characters in a text. Random bytes have a tenth; terminal logs use escapes and
old manuals use backspaces, which do not count."""
_PRIVATE_KEY = re.compile(rb"^-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY", re.MULTILINE)


def type_of(filename: str) -> str | None:
    """Return the MIME type of a file by its name; None where that says nothing.

    The suffix of a compressed file does not count: `notes.md.gz` is Markdown.
    """
    path = PurePosixPath(filename.lower())
    path = path.with_suffix("") if path.suffix in compression.SUFFIXES else path
    return SUFFIXES.get(path.suffix)


def type_of_table(data: bytes, named: str) -> str:
    """Return the MIME type of a file with rows: Parquet by its first bytes, else as `detected`.

    Raises:
        InvalidRequest: It is of a kind that cannot be read.
    """
    return PARQUET if data.startswith(PARQUET_MARK) else detected(data, named)


def detected(data: bytes, named: str, charset: str | None = None) -> str:
    """Return the MIME type of a file: what its bytes say, else what its sender does.

    Args:
        data: The file.
        named: What its sender says; "" for nothing.
        charset: Of its text, as its sender says; None for nothing.

    Raises:
        InvalidRequest: It is of a kind that cannot be read (`field` is then "mime_type"), or of
            another one than its sender says.
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
    """Return the MIME type that the bytes of a file state, "" where they leave it open.

    Recognizes a web page even if it is named as text or Markdown, and a notebook even if it is
    named as text or JSON.

    Raises:
        InvalidRequest: It is of a kind that cannot be read, or a broken archive.
    """
    found = _signed(data, named)
    if not found and named in ("", TEXT, JSON) and _is_notebook(data):
        return NOTEBOOK
    if not found and named in ("", TEXT) and _VTT.match(data):
        return VTT
    is_page = not found and named in _OPEN and _PAGE.match(data[:_HEAD])
    return HTML if is_page else found


def type_in(path: Path) -> str:
    """Return the MIME type of a file whose name says nothing, as `type_in_file` does."""
    with path.open("rb") as file:
        return type_in_file(file)


def type_in_file(file: IO[bytes]) -> str:
    """Return the MIME type of an open file by its content.

    Reads the beginning of the file, also inside of a compressed one, and of an archive the names in
    it.

    Raises:
        InvalidRequest: It is of a kind that cannot be read, a private key, or damaged.
        OSError: It cannot be opened.
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
    """Return the error of a file that cannot be read."""
    known = ", ".join(["text/*", JSON, NOTEBOOK, MAIL, *BINARY])
    return InvalidRequest(
        f"{what}.", hint=f"Supported: {known}. Or send the text itself.", field="mime_type"
    )


def _signed(data: bytes, named: str) -> str:
    """Return the type of a file by its first bytes, "" if unknown."""
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
    """Return True if JSON begins with a key of a notebook and states a notebook format."""
    return _CELLS.match(data) is not None and b'"nbformat"' in data[:_HEAD] + data[-_HEAD:]


def _packed(file: IO[bytes], named: str) -> str:
    """Return the type of a ZIP archive by the names in it."""
    try:
        with zipfile.ZipFile(file) as archive:
            names, says = set(archive.namelist()), b""
            if "mimetype" in names:
                with archive.open("mimetype") as entry:  # all of it could be any size
                    says = entry.read(100)
    except Exception as error:  # a broken archive raises anything
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
