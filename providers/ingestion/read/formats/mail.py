"""A mail: its subject a heading, who wrote to whom and when, its text. RFC 5322."""

from __future__ import annotations

import email
import email.policy
from collections.abc import Iterator
from email.message import EmailMessage
from itertools import islice
from pathlib import PurePosixPath

from corral.api.errors import InvalidRequest
from corral.api.invisible import clean_text
from corral.providers.ingestion.read.formats import html
from corral.providers.ingestion.read.formats.common import Readable, escaped, reading
from corral.providers.ingestion.read.mime_types import decode

_SHOWN = ("From", "To", "Cc", "Date")
_HEADERS = {"from", "to", "subject", "date", "received", "message-id", "return-path"}

MAX_ATTACHMENTS = 100
MAX_NAME_LENGTH = 100


def read(data: bytes) -> Readable:
    """Return the text of a mail with the names of its attachments, which are not read.

    Raises:
        MissingDependency: It has HTML only, and lxml is not installed.
        InvalidRequest: It is no mail.
    """
    return reading("mail", lambda: _read(data))


def _read(data: bytes) -> Readable:
    message = email.message_from_bytes(data, policy=email.policy.default)
    if not _HEADERS & {name.lower() for name in message}:
        raise InvalidRequest(
            "The file is not an email: it has no mail headers.",
            hint="Send it as text/plain to store it as it is.",
            field="content",
        )
    subject = " ".join(str(message.get("Subject", "")).split())
    shown = [f"{name}: {' '.join(str(message[name]).split())}" for name in _SHOWN if message[name]]
    attached = dict(_attached(message))
    shown += [f"Attachments: {', '.join(attached)}"] if attached else []
    unread = tuple(f"the attachment {name!r}" for name, part in attached.items() if _content(part))
    text = "\n\n".join(
        filter(None, [f"# {subject}" if subject else "", "\n".join(shown), _body(message)])
    )
    return Readable([text], unread=unread)


def split_attachments(data: bytes) -> tuple[bytes, dict[str, bytes]]:
    """Return a mail without the content of its attachments, and that content by file name.

    Names are unique and without folders. Text is UTF-8 if the mail names its charset. A mail in a
    mail is an attachment; beyond the 100th, attachments stay in the mail.

    Raises:
        InvalidRequest: It is no mail.
    """
    return reading("mail", lambda: _split(data))


def _split(data: bytes) -> tuple[bytes, dict[str, bytes]]:
    message = email.message_from_bytes(data, policy=email.policy.default)
    parts = {name: (part, _content(part)) for name, part in _attached(message)}
    if not parts:
        return data, {}
    for part, _ in parts.values():
        part.set_payload([EmailMessage()] if part.is_multipart() else "")
    return message.as_bytes(), {name: content for name, (_, content) in parts.items() if content}


def _attached(message: EmailMessage) -> Iterator[tuple[str, EmailMessage]]:
    """Yield the attachments of a mail under their names."""
    names: set[str] = set()
    parts = message.iter_attachments() if message.is_multipart() else ()
    for number, part in enumerate(islice(parts, MAX_ATTACHMENTS), 1):
        is_mail = part.get_content_type() == "message/rfc822"
        given = part.get_filename() or (f"mail {number}.eml" if is_mail else "")
        line = " ".join(clean_text(given).replace("\\", "/").split())
        name = PurePosixPath(line).name[-MAX_NAME_LENGTH:].lstrip(".") or f"attachment {number}"
        name = f"{number} {name}" if name in names else name
        names.add(name)
        yield name, part


def _content(part: EmailMessage) -> bytes:
    if part.is_multipart():  # a mail in a mail
        inside = part.get_payload()
        first = inside[0] if isinstance(inside, list) and inside else None
        return first.as_bytes().strip() if isinstance(first, EmailMessage) else b""
    data = part.get_payload(decode=True)
    charset = part.get_content_charset()
    if not isinstance(data, bytes) or not charset or part.get_content_maintype() != "text":
        return data if isinstance(data, bytes) else b""
    try:
        return decode(data, charset).encode()
    except InvalidRequest:
        return data


def _body(message: EmailMessage) -> str:
    body = message.get_body(("plain", "html"))
    if body is None:
        return ""
    text = body.get_content()
    if not isinstance(text, str):
        return ""
    return html.whole(text, "mail") if body.get_content_subtype() == "html" else escaped(text)
