"""`corral ingest`: the attachments of a mail are documents below it."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from corral.api.errors import InvalidRequest
from corral.providers.ingestion.read.formats.mail import MAX_ATTACHMENTS, split_attachments
from corral.providers.ingestion.read.parsing import parse
from corral.server.cli.attachments import attachments_of
from corral.server.cli.client import Client
from corral.server.cli.failures import JSON
from corral.server.cli.files import ReadOptions, Report, collect, read_document
from corral.server.cli.ingesting import BATCH_DOCUMENTS

from .stored_documents import stored

Corral = Callable[..., Result]


def mail(**attached: bytes | str) -> EmailMessage:
    """Return a mail with attachments; a name's underscore is its period."""
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = "Hay", "ada@a.org", "bob@a.org"
    message.set_content("Please send hay.")
    for name, data in attached.items():
        filename = name.replace("_", ".")
        if isinstance(data, str):
            message.add_attachment(data, filename=filename, charset="iso-8859-1")
        else:
            message.add_attachment(
                data, maintype="application", subtype="octet-stream", filename=filename
            )
    return message


def documents(path: Path, options: ReadOptions = ReadOptions()) -> tuple[list[JSON], Report]:  # noqa: B008
    """Return the mail as a document, then its attachments, and the report."""
    report = Report()
    [file] = collect([path], report, options)
    whole = read_document(file, options, report)
    return [whole, *(each for _, each in attachments_of(file, whole, options, report))], report


def test_an_attachment_is_a_document_below_its_mail(corral: Corral, tmp_path: Path) -> None:
    """Both name each other, both are found, and a second run changes nothing.

    If this fails: what was sent with a mail is not found, or not known to be of that mail.
    """
    folder = tmp_path / "mails"
    folder.mkdir()
    sent = mail(delivery_txt="Deliver to the größte gate.", picture_png=b"\x89PNG\r\n\0")
    (folder / "order.eml").write_bytes(bytes(sent))
    done = corral("ingest", "farm", folder, "--create")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("farm: ingested 2 documents")
    assert "Skipped (a picture): " in done.stderr
    assert "not read" not in done.stderr
    assert set(stored(corral)["document_ids"]) == {"order.eml", "order.eml/delivery.txt"}
    shown = corral(
        "query", "farm", "größte gate", "--mode", "keyword", "--max-tokens", "200"
    ).stdout
    assert '"mail":"order.eml"' in shown
    shown = corral("query", "farm", "send", "--mode", "keyword", "--max-tokens", "200").stdout
    assert '"attachments":["delivery.txt"]' in shown
    assert "Attachments: delivery.txt, picture.png" in shown
    again = corral("ingest", "farm", folder)
    assert "2 unchanged" in again.stdout


def test_attachments_go_with_their_mail(corral: Corral, tmp_path: Path) -> None:
    """--sync keeps the attachments of a mail that exists, and deletes them with the mail.

    If this fails: an attachment is deleted at each run, or stays for ever.
    """
    folder = tmp_path / "mails"
    folder.mkdir()
    (folder / "order.eml").write_bytes(bytes(mail(delivery_txt="Deliver.")))
    (folder / "a.txt").write_text("Hay")
    corral("ingest", "farm", folder, "--create", "--sync", "--yes")
    corral("ingest", "farm", folder, "--sync", "--yes")
    assert len(set(stored(corral)["document_ids"])) == 3
    (folder / "order.eml").unlink()
    corral("ingest", "farm", folder, "--sync", "--yes")
    assert set(stored(corral)["document_ids"]) == {"a.txt"}


def test_many_attachments_go_in_batches(
    corral: Corral, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request has no more documents than it has of files.

    If this fails: the server refuses a mail of many attachments, and each goes by itself.
    """
    sizes: list[int] = []
    submit = Client.submit

    async def watched(self: Client, db: str, bodies: Any, *rest: Any, **more: Any) -> Any:
        sizes.append(len(bodies))
        return await submit(self, db, bodies, *rest, **more)

    monkeypatch.setattr(Client, "submit", watched)
    sent = mail(**{f"a{number}_txt": f"Hay {number}" for number in range(BATCH_DOCUMENTS)})
    (tmp_path / "order.eml").write_bytes(bytes(sent))
    done = corral("ingest", "farm", tmp_path / "order.eml", "--create")
    assert done.exit_code == 0, done.output
    assert sizes == [BATCH_DOCUMENTS, 1]


def test_an_attachment_is_read_as_a_file_is(tmp_path: Path) -> None:
    """By its content and name: pages, packed texts, keys; a title is the mail's only."""
    inner = mail()
    whole = mail(
        page_htm=b"<html><p>Hay</p></html>", NEWS_gz=gzip.compress(b"Hay is dry."),
        id_rsa=b"secret", server_pem=b"secret", noise=b"\0\1\2", blank_txt=b" ",
    )  # fmt: skip
    whole.add_attachment(inner)
    (tmp_path / "a").write_bytes(bytes(whole))
    found, report = documents(tmp_path / "a", ReadOptions(title="Order"))
    assert {each["document_id"]: each["mime_type"] for each in found} == {
        "a": "message/rfc822", "a/page.htm": "text/html", "a/NEWS.gz": "text/plain",
        "a/mail 7.eml": "message/rfc822", "a/id.rsa": "text/plain",
    }  # fmt: skip
    assert [each["metadata"].get("title") for each in found] == [
        "Order", None, "NEWS.gz", "id.rsa", None,
    ]  # fmt: skip
    assert found[2]["content"] == "Hay is dry."
    assert dict(report.skipped) == {
        f"{(tmp_path / 'a').as_posix()}/server.pem": "secret or key; --as-text NAME takes it",
        f"{(tmp_path / 'a').as_posix()}/noise": "not text: it holds zero bytes",
        f"{(tmp_path / 'a').as_posix()}/blank.txt": "empty",
    }


def test_names_of_attachments_lead_nowhere() -> None:
    """Folders, leading periods, line breaks and doubles: each attachment has one name of its own.

    If this fails: an attachment replaces another one, or a document elsewhere.
    """
    message = mail()
    for name in ("../../a.txt", "c:\\x\\a.txt", "/etc/.b", "", "n" * 300, ".."):
        message.add_attachment(b"x", maintype="a", subtype="b", filename=name)
    _, found = split_attachments(bytes(message))
    assert list(found) == ["a.txt", "2 a.txt", "b", "attachment 4", "n" * 100, "attachment 6"]


def test_the_server_says_which_attachments_it_did_not_read() -> None:
    """The content is gone from the mail that `corral ingest` sends, and so is the note."""
    whole = bytes(mail(a_txt="Hay", b_txt="Wool"))
    assert parse(whole).unread == ("the attachment 'a.txt'", "the attachment 'b.txt'")
    assert "Attachments: a.txt, b.txt" in parse(whole).text
    rest, found = split_attachments(whole)
    assert found == {"a.txt": b"Hay\n", "b.txt": b"Wool\n"}
    assert parse(rest).unread == ()
    assert parse(rest).text == parse(whole).text
    assert split_attachments(rest) == (rest, {})


def test_a_mail_of_many_attachments_ends() -> None:
    """The first 100 are taken; a mail that is none is refused."""
    message = mail()
    for number in range(MAX_ATTACHMENTS + 5):
        message.add_attachment(b"x", maintype="a", subtype="b", filename=f"{number}")
    assert len(split_attachments(bytes(message))[1]) == MAX_ATTACHMENTS
    deep = b"".join(
        b'From: a\nContent-Type: multipart/mixed; boundary="b%d"\n\n--b%d\n' % (n, n)
        for n in range(5000)
    )
    with pytest.raises(InvalidRequest):
        split_attachments(deep)
