"""`corral ingest`: a file is what its content says, and what is left out is said."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import docx
import pytest
from click.testing import Result

from corral.providers.ingestion.read.detecting import DOCX, HTML, MAIL, MARKDOWN, PDF, TEXT, ZIP
from corral.providers.ingestion.read.excluded import excluded
from corral.server.cli.files import (
    BadFileError,
    ReadOptions,
    Report,
    SkippedFileError,
    collect,
    read_document,
)

from .stored_documents import stored

Corral = Callable[..., Result]


def office(path: Path) -> None:
    """Write a Word document."""
    document = docx.Document()
    document.add_paragraph("Counted twice.")
    document.save(str(path))


def kinds_in(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the MIME type of each file to ingest, and the reason of each file left out."""
    report = Report()
    files = collect([folder], report)
    reasons = {Path(name).name: reason for name, reason in report.skipped}
    assert not report.failed
    return {file.document_id: file.mime_type for file in files}, reasons


NAMES = [
    "README", "NEWS", "AUTHORS", "README.Debian", "Makefile", "Dockerfile", "a.conf", "a.log",
    "a.ini", "a.diff", "a.patch", "a.kt", "a.1", "picture.png",
]  # fmt: skip


def test_text_is_text_under_every_name(tmp_path: Path) -> None:
    """Without a suffix, and with one that is unknown or belongs to another kind.

    If this fails: of a folder of documentation, README and NEWS are left out.
    """
    for name in NAMES:
        (tmp_path / name).write_text(f"The gate of {name} is gr\u00fcn.")
    kinds, reasons = kinds_in(tmp_path)
    assert kinds == dict.fromkeys(NAMES, TEXT)
    assert reasons == {}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "latin-1", "koi8-r"])
def test_text_without_a_suffix_may_be_in_any_encoding(tmp_path: Path, encoding: str) -> None:
    """Bytes above 127 are letters somewhere; a byte order mark tells UTF-16."""
    text = "Корова ест траву." if encoding == "koi8-r" else "Größe der Herde"
    (tmp_path / "NOTES").write_bytes(text.encode(encoding) * 20)
    assert kinds_in(tmp_path)[0] == {"NOTES": TEXT}


def test_a_log_with_colors_is_text(tmp_path: Path) -> None:
    """Escape sequences of a terminal and backspaces of old manuals do not count as noise."""
    (tmp_path / "build.out").write_bytes(b"\x1b[32mok\x1b[0m\n" * 50)
    (tmp_path / "manual").write_bytes(b"N\bNA\bAM\bME\bE\n" * 50)
    assert set(kinds_in(tmp_path)[0].values()) == {TEXT}


def test_files_without_a_known_suffix_are_known_by_their_content(tmp_path: Path) -> None:
    """PDF, Office files, pages, mail and archives go in under any name; noise and keys do not.

    If this fails: `corral ingest` passes over papers that are named 1706.03762, or stores a key.
    """
    (tmp_path / "1706.03762").write_bytes(b"%PDF-1.4\n1 0 obj\nendobj\n")
    office(tmp_path / "minutes")
    (tmp_path / "mail").write_text("From: a@b.c\nTo: d@e.f\nSubject: wool\n\nWarm.\n")
    (tmp_path / "page.2024").write_text("<html><p>Hay</p></html>")
    (tmp_path / "picture").write_bytes(b"\x89PNG\r\n\0")
    (tmp_path / "drawing").write_text("<svg xmlns='x'></svg>")
    (tmp_path / "old.msi").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99))
    (tmp_path / "noise.bin").write_bytes(bytes(range(1, 256)) * 9)
    (tmp_path / "zeros.bin").write_bytes(b"hay\0" * 9)
    (tmp_path / "deploy").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n")
    with zipfile.ZipFile(tmp_path / "packed", "w") as archive:
        archive.writestr("a.txt", "a")
    (tmp_path / "torn").write_bytes((tmp_path / "minutes").read_bytes()[:500])
    kinds, reasons = kinds_in(tmp_path)
    assert kinds == {
        "1706.03762": PDF,
        "minutes": DOCX,
        "mail": MAIL,
        "page.2024": HTML,
        "packed": ZIP,
    }
    assert reasons == {
        "picture": "a picture; --pictures takes it",
        "drawing": "a picture",
        "old.msi": "an Office file of before 2007, or an installer",
        "noise.bin": "not text: it holds control characters",
        "zeros.bin": "not text: it holds zero bytes",
        "deploy": "a private key",
        "torn": "the archive cannot be read (BadZipFile)",
    }


@pytest.mark.parametrize(
    ("name", "kind"),
    [("id_rsa", "secret or key"), ("server.PEM", "secret or key"), (".env", "secret or key"),
     ("uv.lock", "lock file"), ("package-lock.json", "lock file"), ("go.sum", "lock file"),
     ("a.min.js", "generated"), ("a_pb2.py", "generated"), ("logo.svg", "picture"),
     ("credentials.md", None), ("secrets.rst", None), ("keys.txt", None), ("map.md", None)],
)  # fmt: skip
def test_names_leave_files_out(name: str, kind: str | None, tmp_path: Path) -> None:
    """Keys, lock files and generated code, in any case of letters; not texts about them.

    If this fails: a password is in a vector DB, or a page about passwords is not.
    """
    assert excluded(name) == kind
    (tmp_path / name).write_text("hay")
    report = Report()
    files = collect([tmp_path], report, ReadOptions(hidden=True))
    assert [reason for _, reason in report.skipped] == (
        [f"{kind}; --as-text NAME takes it"] if kind else []
    )
    assert [file.document_id for file in files] == ([] if kind else [name])
    assert collect([tmp_path / name], Report())
    assert collect([tmp_path], Report(), ReadOptions(hidden=True, as_text=(name,)))


def test_a_kind_of_skipped_files_is_one_line(corral: Corral, tmp_path: Path) -> None:
    """With the names of some of its files; the rest goes in."""
    folder = tmp_path / "farm"
    folder.mkdir()
    (folder / "README").write_text("The gate is green.")
    for number in range(3):
        (folder / f"{number}.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    (folder / "yarn.lock").write_text("hay 1.0")
    done = corral("ingest", "farm", folder, "--create")
    assert done.exit_code == 0, done.output
    assert set(stored(corral)["document_ids"]) == {"README"}
    said = [line for line in done.stderr.splitlines() if line.startswith("Skipped")]
    assert [line.partition("): ")[0] for line in said] == [
        "Skipped (a picture; --pictures takes it", "Skipped (lock file; --as-text NAME takes it",
    ]  # fmt: skip


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
}


@pytest.mark.parametrize("suffix", PACKERS)
def test_one_layer_around_a_document_is_opened(suffix: str, tmp_path: Path) -> None:
    """Under the name of the document with the layer's suffix, and under any other name.

    If this fails: the changelogs of a system are skipped.
    """
    pack = PACKERS[suffix]
    office(tmp_path / "minutes")
    (tmp_path / f"minutes.docx.{suffix}").write_bytes(pack((tmp_path / "minutes").read_bytes()))
    (tmp_path / "minutes").unlink()
    (tmp_path / f"a.md.{suffix}").write_bytes(pack(b"# Hay"))
    (tmp_path / f"changelog.Debian.{suffix}").write_bytes(pack("gr\u00fcn".encode("latin-1")))
    (tmp_path / "page").write_bytes(pack(b"<html><p>Hay</p></html>"))
    files = {file.document_id: file for file in collect([tmp_path], Report())}
    assert {name.replace(suffix, "z"): file.mime_type for name, file in files.items()} == {
        "minutes.docx.z": DOCX, "a.md.z": MARKDOWN, "changelog.Debian.z": TEXT, "page": HTML,
    }  # fmt: skip
    assert read_document(files[f"a.md.{suffix}"])["content"] == "# Hay"
    assert read_document(files[f"changelog.Debian.{suffix}"])["content"] == "gr\u00fcn"
    assert "base64" in read_document(files[f"minutes.docx.{suffix}"])["content"]["uri"]


def test_a_layer_hides_nothing(tmp_path: Path) -> None:
    """A second layer, an archive, a picture or noise inside is left out; a torn file fails.

    If this fails: bytes are stored as text.
    """
    (tmp_path / "twice.gz").write_bytes(gzip.compress(gzip.compress(b"hay")))
    (tmp_path / "picture.gz").write_bytes(gzip.compress(b"\x89PNG\r\n"))
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(b"a.txt".ljust(257, b"\0") + b"ustar"))
    (tmp_path / "packed.xz").write_bytes(lzma.compress(b"PK\3\4"))
    (tmp_path / "torn.gz").write_bytes(gzip.compress(b"hay" * 99)[:20])
    kinds, reasons = kinds_in(tmp_path)
    assert kinds == {}
    assert set(reasons) == {"twice.gz", "picture.gz", "a.tar.gz", "packed.xz", "torn.gz"}
    (tmp_path / "torn.txt.gz").write_bytes(gzip.compress(b"hay" * 99)[:20])
    (tmp_path / "twice.txt.gz").write_bytes(gzip.compress(gzip.compress(b"hay" * 99)))
    files = {file.document_id: file for file in collect([tmp_path], Report())}
    with pytest.raises(BadFileError, match="compressed file cannot be read"):
        read_document(files["torn.txt.gz"])
    with pytest.raises((BadFileError, SkippedFileError)):
        read_document(files["twice.txt.gz"])


def test_a_layer_does_not_hide_a_size(tmp_path: Path) -> None:
    """The server's bounds hold for what is inside."""
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"hay " * 1_000_000))
    [file] = collect([tmp_path], Report())
    with pytest.raises(BadFileError, match=r"its 3.8 MiB are more than a request"):
        read_document(file, ReadOptions(max_body_mib=1))
