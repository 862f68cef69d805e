"""Read EPUB books (EPUB 3.3 and EPUB 2), with the chapters in reading order."""

from __future__ import annotations

import codecs
import posixpath
import zipfile
from typing import Any
from urllib.parse import unquote

from corral.api.errors import InvalidRequest
from corral.providers.base.document_limits import DocumentLimits
from corral.providers.ingestion.read.formats import html
from corral.providers.ingestion.read.formats.archive import opened
from corral.providers.ingestion.read.formats.common import Readable, package, reading

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_TEXTS = {"application/xhtml+xml", "text/html", "text/x-oeb1-document"}


def read(data: bytes, limits: DocumentLimits) -> Readable:
    """Return the text of a book as Markdown, without its navigation.

    Raises:
        MissingDependency: lxml is not installed.
        InvalidRequest: The file is broken, is copy-protected, is larger than 256 MiB once unpacked,
            or has too many characters.
    """
    etree = package("lxml.etree", "lxml", "EPUB")
    return reading("EPUB", lambda: _read(etree, data, limits))


def _read(etree: Any, data: bytes, limits: DocumentLimits) -> Readable:
    with opened(data, "EPUB") as archive:
        root = _xml(etree, archive, _CONTAINER).find(".//{*}rootfile").get("full-path")
        book = _xml(etree, archive, root)
        protected = _protected(etree, archive)
        texts: list[str] = []
        room = limits.max_characters
        for name in _chapters(book, posixpath.dirname(root)):
            if name in protected:
                raise InvalidRequest(
                    "The EPUB is protected against copying.",
                    hint="Send a copy without protection, or its text.",
                    field="content",
                )
            texts.append(html.whole(_decoded(archive.read(name)), "EPUB"))
            room -= len(texts[-1])
            if room < 0:
                raise limits.exceeded("characters", "max_characters")
    title = " ".join((book.findtext(".//{*}title") or "").split()) or None
    return Readable(["\n\n".join(filter(None, texts))], title=title)


def _xml(etree: Any, archive: zipfile.ZipFile, name: str) -> Any:
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    return etree.fromstring(archive.read(name), parser)


def _decoded(data: bytes) -> str:
    is_utf_16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return data.decode("utf-16" if is_utf_16 else "utf-8-sig")


def _chapters(book: Any, folder: str) -> list[str]:
    """Return the file names of the chapters in reading order."""
    items = {
        item.get("id"): item
        for item in book.iterfind(".//{*}manifest/{*}item")
        if item.get("media-type") in _TEXTS and "nav" not in (item.get("properties") or "").split()
    }
    named = [ref.get("idref") for ref in book.iterfind(".//{*}spine/{*}itemref")]
    places = [unquote(items[name].get("href")) for name in named if name in items]
    return [posixpath.normpath(posixpath.join(folder, place)) for place in dict.fromkeys(places)]


def _protected(etree: Any, archive: zipfile.ZipFile) -> set[str]:
    if _ENCRYPTION not in archive.namelist():
        return set()
    found = _xml(etree, archive, _ENCRYPTION).iterfind(".//{*}CipherReference")
    return {posixpath.normpath(unquote(each.get("URI"))) for each in found}
