"""The encodings of texts: as their senders name them, as the texts name them, and unknown ones."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from corral.api.errors import InvalidRequest
from corral.providers.ingestion.read.detecting import CSV, HTML, MAIL
from corral.providers.ingestion.read.mime_types import decode
from corral.providers.ingestion.read.parsing import parse
from corral.providers.sources.walking import Selection, walk


def test_bytes_that_are_no_utf_8_are_refused() -> None:
    """The error says how to name the charset."""
    with pytest.raises(InvalidRequest, match="charset=windows-1252"):
        parse("gräs".encode("latin-1"), "text/plain")


@pytest.mark.parametrize(
    ("charset", "text"),
    [("iso-8859-1", "gräs"), ('"Windows-1252"', "“gräs”"), ("utf-16", "草"), ("shift_jis", "草")],
)
def test_the_charset_that_is_named_decodes(charset: str, text: str) -> None:
    """In any case, with or without quotes."""
    data = text.encode(charset.strip('"'))
    assert parse(data, f"text/plain; charset={charset}").text == text


@pytest.mark.parametrize("charset", ["utf-16-le", "utf-16-be", "UTF-16LE", "utf_16_le"])
def test_a_wide_charset_needs_no_byte_order_mark(charset: str) -> None:
    """A text whose sender names UTF-16 holds zero bytes, and is a text.

    If this fails: it is refused as binary, though the error of a bad charset asks to name one.
    """
    assert parse("hay".encode(charset), f"text/plain; charset={charset}").text == "hay"


@pytest.mark.parametrize("charset", ["zlib", "rot13", "idna", "punycode", "unicode_escape", "x"])
def test_other_codecs_are_no_charsets(charset: str) -> None:
    """Codecs that unpack, or that are slow on hostile input, are not reachable by their name."""
    with pytest.raises(InvalidRequest, match="not supported"):
        decode(b"abc", charset)


@pytest.mark.parametrize(
    ("charset", "word"), [("shift_jis", "水車"), ("windows-1251", "рожь"), ("iso-8859-7", "σίκαλη")]
)
@pytest.mark.parametrize("named", ['<meta charset="{}"><p>', '<?xml version="1.0" encoding="{}"?>'])
def test_a_page_names_its_charset(charset: str, word: str, named: str) -> None:
    """What HTML or XML declares counts if no sender names a charset and the bytes are not UTF-8.

    If this fails: old pages are refused, or their letters are wrong.
    """
    text = f"{named.format(charset)}{word}"
    kind = HTML if "meta" in named else "application/xml"
    assert word in parse(text.encode(charset), kind).text
    assert word in parse(text.encode(), kind).text


def test_a_mail_with_an_unknown_charset_is_read() -> None:
    """As UTF-8, or else as Windows-1252; the charset is in `unread`."""
    for encoding in ("utf-8", "windows-1252"):
        mail = "From: a@example.org\nContent-Type: text/plain; charset=x-none\n\nGröße"
        parsed = parse(mail.encode(encoding), MAIL)
        assert parsed.text.endswith("Größe")
        assert parsed.unread == ("the charset 'x-none'",)


def test_colors_of_terminals_are_left_out() -> None:
    """A log has the words that its reader sees.

    If this fails: `31m` sticks to words, so keyword search does not find them.
    """
    assert parse(b"\x1b[1;31mERROR\x1b[0m mill stopped\n").text == "ERROR mill stopped"


def test_a_quotation_mark_that_never_closes_is_named() -> None:
    """The error says what is wrong with a CSV file, and at which line."""
    with pytest.raises(InvalidRequest, match="unexpected end of data, at line 3"):
        parse(b'name,note\nrye,"dry"\noats,"wet\n', CSV)


@pytest.mark.skipif(sys.platform == "darwin", reason="the file system allows no such name")
def test_a_name_that_is_no_text_is_reported(tmp_path: Path) -> None:
    """A file whose name is not UTF-8 has no document id; the others of its folder are taken."""
    for name in (b"gr\xe4s.txt", b"hay.txt"):
        Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).write_text("dry")
    reasons: list[str] = []

    def note(_: str, reason: str) -> None:
        reasons.append(reason)

    taken = walk(tmp_path, Selection(), note, note)
    assert [document_id for _, document_id in taken] == ["hay.txt"]
    assert reasons == ["its name is not UTF-8; rename it"]
