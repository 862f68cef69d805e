"""What a mail or an archive holds is unpacked, within bounds of size, depth and number."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from email.message import EmailMessage
from pathlib import Path

import pytest

from corral.api.errors import InvalidRequest
from corral.providers.base.document_limits import DocumentLimits
from corral.providers.ingestion.read.containers import MAX_DEPTH, unpack
from corral.providers.ingestion.read.detecting import MSG, ZIP, detected
from corral.providers.ingestion.read.formats.mail import MAX_ATTACHMENTS, attachments
from corral.providers.ingestion.read.formats.zipped import MAX_NAME_LENGTH
from corral.providers.ingestion.read.parsing import parse

from .made_containers import msg, zipped
from .made_files import FORMATS

LIMITS = DocumentLimits()


def mail(*files: tuple[str, bytes]) -> EmailMessage:
    """Return a mail with attachments."""
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = "Hay", "ada@a.org", "bob@a.org"
    message.set_content("Please send hay.")
    for name, data in files:
        message.add_attachment(data, maintype="a", subtype="b", filename=name)
    return message


def parts(data: bytes, folder: Path, limits: DocumentLimits = LIMITS) -> dict[str, bytes | str]:
    """Return the content of each unpacked document, or why it was left out."""
    folder.mkdir(exist_ok=True)
    found = unpack(data, "", None, limits, folder)
    assert len({part.name for part in found}) == len(found)
    return {each.name: each.reason or (folder / each.file).read_bytes() for each in found}


@pytest.mark.parametrize("seed", range(12))
def test_every_document_comes_back_as_it_was(seed: int, tmp_path: Path) -> None:
    """In an archive, a mail, a mail of Outlook, and one in another: bytes and paths.

    If this fails: a document loses a byte on its way out, or its name.
    """
    chosen = random.Random(seed)
    names = chosen.sample(sorted(FORMATS), 3)
    files = {
        f"{number} {FORMATS[name][0]}": FORMATS[name][1](chosen).data
        for number, name in enumerate(names)
    }
    sent = bytes(mail(*files.items()))
    outlook = msg({"0037": f"Order {seed}", "1000": "Please send hay."}, files)
    packed = zipped({f"b/{name}": data for name, data in files.items()} | {"sent.eml": sent})
    assert parts(sent, tmp_path / "mail") == files
    assert parts(outlook, tmp_path / "msg") == files
    below = {f"b/{name}": data for name, data in files.items()}
    inner = {f"sent.eml/{name}": data for name, data in files.items()}
    assert parts(packed, tmp_path / "zip") == below | {"sent.eml": sent} | inner


def test_a_mail_of_outlook_reads_as_any_mail() -> None:
    """Subject, sender, recipients and body; by its content, too."""
    headers = "From: Ada <a@a.org>\nTo: b@b.org\n"
    texts = {"0037": "Flour", "1000": "Sixty sacks.", "007D": headers}
    data = msg(texts, {"a.txt": b"Hay"})
    assert detected(data, "") == detected(data, "text/plain") == MSG
    read = parse(data)
    assert read.title == "Flour"
    assert read.text == (
        "# Flour\n\nFrom: Ada <a@a.org>\nTo: b@b.org\nAttachments: a.txt\n\nSixty sacks."
    )


def test_names_lead_nowhere(tmp_path: Path) -> None:
    """Steps up, roots, drives, doubles, long names: all stay below the archive.

    If this fails: a file replaces another document, or one outside of its archive.
    """
    data = zipped({
        "../../a.txt": b"1", "/etc/a.txt": b"2", "c:\\x\\a.txt": b"3", "a.txt": b"4", "b/./c": b"5",
        "n" * 300: b"6", "..": b"7",
    })  # fmt: skip
    assert list(parts(data, tmp_path / "a")) == [
        "a.txt", "etc/a.txt", "x/a.txt", "4 a.txt", "b/c", "n" * MAX_NAME_LENGTH, "file 7",
    ]  # fmt: skip
    found = attachments(bytes(mail(("../../a.txt", b"x"), ("c:\\a.txt", b"x"), ("/etc/.b", b"x"))))
    assert [name for name, _ in found] == ["a.txt", "2 a.txt", "b"]


def test_hidden_and_secret_files_stay_out(tmp_path: Path) -> None:
    """As in a folder; what macOS adds, too."""
    data = zipped({
        ".env": b"x", "__MACOSX/._a": b"x", "a/.git/config": b"x", "id_rsa": b"x", "b.txt": b"x",
    })  # fmt: skip
    assert parts(data, tmp_path / "a") == {"id_rsa": "secret or key", "b.txt": b"x"}


def test_containers_end_at_a_depth(tmp_path: Path) -> None:
    """An archive in an archive, and so on: also one that seems to hold itself.

    If this fails: an archive of a few kilobytes unpacks without end.
    """
    data = zipped({"end.txt": b"x"})
    for _ in range(6):
        data = gzip.compress(zipped({"a.zip": data}))
    found = parts(data, tmp_path / "a")
    assert list(found) == ["/".join(["a.zip"] * depth) for depth in range(1, MAX_DEPTH + 1)]
    assert found["/".join(["a.zip"] * MAX_DEPTH)] == f"deeper than {MAX_DEPTH} containers"


def test_bombs_are_left_out(tmp_path: Path) -> None:
    """A file far larger than its packed size; others beside it are read."""
    data = zipped({"bomb.txt": bytes(50_000_000), "b.txt": b"x"})
    assert parts(data, tmp_path / "a") == {
        "bomb.txt": "it unpacks to far more than its size", "b.txt": b"x",
    }  # fmt: skip


def test_a_file_that_lies_about_its_size_is_damaged(tmp_path: Path) -> None:
    """Its size in the list of files is smaller than what it unpacks to."""
    data = bytearray(zipped({"a.txt": bytes(2_000_000), "b.txt": b"x"}))
    at = data.index(b"PK\1\2") + 24
    data[at : at + 4] = struct.pack("<I", 9)
    assert parts(bytes(data), tmp_path / "a") == {"a.txt": "damaged", "b.txt": b"x"}


def test_broken_and_locked_files_are_named(tmp_path: Path) -> None:
    """By what is wrong with each."""
    packed = zlib.compress(b"hay " * 9, 9)[2:-4]
    data = bytearray(zipped({"a.txt": b"hay " * 9, "b.txt": b"x"}))
    at = data.index(packed)
    data[at] ^= 0xFF
    at = data.rindex(b"PK\1\2") + 8
    data[at] |= 1
    found = parts(bytes(data), tmp_path / "a")
    assert found == {"a.txt": "damaged", "b.txt": "locked with a password"}


def test_many_files_end(tmp_path: Path) -> None:
    """At `max_parts` over all depths; of a mail, the first hundred attachments are taken."""
    limits = DocumentLimits(max_parts=5)
    inner = zipped({f"{n}.txt": b"x" for n in range(4)})
    with pytest.raises(InvalidRequest, match="max_parts"):
        parts(zipped({"a.zip": inner, "b.zip": inner}), tmp_path / "a", limits)
    many = mail(*((f"{number}", b"x") for number in range(MAX_ATTACHMENTS + 5)))
    assert len(attachments(bytes(many))) == MAX_ATTACHMENTS
    deep = b"".join(
        b'From: a\nContent-Type: multipart/mixed; boundary="b%d"\n\n--b%d\n' % (n, n)
        for n in range(5000)
    )
    with pytest.raises(InvalidRequest):
        attachments(deep)


def test_office_files_are_no_archives() -> None:
    """What its sender calls an Office file, and is none, is refused; so is a part of one."""
    for name, sent in (("a.txt", FORMATS["docx"][0]), ("[Content_Types].xml", "")):
        kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
        with pytest.raises(InvalidRequest, match="an archive"):
            detected(zipped({name: b"x"}), kind if sent else "")
    assert detected(zipped({"a.txt": b"x"}), "") == ZIP
