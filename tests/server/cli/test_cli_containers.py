"""`corral ingest`: attachments of a mail and files of an archive are documents below it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path

from click.testing import Result

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


def test_an_attachment_is_a_document_below_its_mail(corral: Corral, tmp_path: Path) -> None:
    """Both name each other, both are found, and a second run changes nothing.

    If this fails: what was sent with a mail is not found, or not known to be of that mail.
    """
    folder = tmp_path / "mails"
    folder.mkdir()
    sent = mail(delivery_txt="Deliver to the größte gate.", picture_gif=b"GIF89a\0\0")
    (folder / "order.eml").write_bytes(bytes(sent))
    done = corral("ingest", "farm", folder, "--create")
    assert done.exit_code == 0, done.output
    assert "not read: picture.gif (" in done.stderr
    assert set(stored(corral)["document_ids"]) == {"order.eml", "order.eml/delivery.txt"}
    asked = ("--mode", "keyword", "--max-tokens", "200")
    shown = corral("query", "farm", "größte gate", *asked).stdout
    assert '"part_of":"order.eml"' in shown
    shown = corral("query", "farm", "send", *asked).stdout
    assert '"parts":["delivery.txt"]' in shown
    assert "Attachments: delivery.txt, picture.gif" in shown
    assert "1 unchanged" in corral("ingest", "farm", folder).stdout


def test_parts_go_with_their_container(corral: Corral, tmp_path: Path) -> None:
    """--sync keeps the attachments of a mail that exists, and deletes them with the mail.

    If this fails: an attachment is deleted at each run, or stays for ever.
    """
    folder = tmp_path / "mails"
    folder.mkdir()
    (folder / "order.eml").write_bytes(bytes(mail(a_txt="Deliver.", b_txt="Soon.")))
    (folder / "a.txt").write_text("Hay")
    corral("ingest", "farm", folder, "--create", "--sync", "--yes")
    corral("ingest", "farm", folder, "--sync", "--yes")
    assert len(set(stored(corral)["document_ids"])) == 4
    (folder / "order.eml").write_bytes(bytes(mail(b_txt="Later.")))
    corral("ingest", "farm", folder, "--sync", "--yes")
    assert set(stored(corral)["document_ids"]) == {"a.txt", "order.eml", "order.eml/b.txt"}
    (folder / "order.eml").unlink()
    corral("ingest", "farm", folder, "--sync", "--yes")
    assert set(stored(corral)["document_ids"]) == {"a.txt"}


def test_an_archive_is_opened(corral: Corral, tmp_path: Path) -> None:
    """Under any name; keys stay out."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("farm/hay.md", "# Hay\n\nDry.")
        archive.writestr("farm/id_rsa", "secret")
    (tmp_path / "backup").write_bytes(out.getvalue())
    done = corral("ingest", "farm", tmp_path / "backup", "--create")
    assert done.exit_code == 0, done.output
    assert "not read: farm/id_rsa (secret or key)" in done.stderr
    assert set(stored(corral)["document_ids"]) == {"backup", "backup/farm/hay.md"}
