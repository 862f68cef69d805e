"""Read mails (RFC 5322): the subject as a heading, the main headers, and the text."""

from __future__ import annotations

import email
import email.policy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from email.message import EmailMessage
from itertools import islice
from pathlib import PurePosixPath

from corral.api.errors import InvalidRequest
from corral.api.invisible import clean_text
from corral.providers.ingestion.read.detecting import TEXT
from corral.providers.ingestion.read.encodings import encoding_of
from corral.providers.ingestion.read.formats import html
from corral.providers.ingestion.read.formats.common import Readable, escaped, reading
from corral.providers.ingestion.read.mime_types import decode

SHOWN = ("From", "To", "Cc", "Date")
_HEADERS = {"from", "to", "subject", "date", "received", "message-id", "return-path"}

MAX_ATTACHMENTS = 100
MAX_NAME_LENGTH = 100


def read(data: bytes) -> Readable:
    """Return the text of a mail, with the names of its attachments.

    Raises:
        MissingDependency: The mail has only HTML, and lxml is not installed.
        InvalidRequest: The file is not a mail.
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
    shown = {name: str(message[name]) for name in SHOWN if message[name]}
    names = [name for name, part in _attached(message) if _content(part)]
    body, unread = _body(message)
    mail = as_mail(str(message.get("Subject", "")), shown, body, names)
    return replace(mail, unread=unread)


def as_mail(
    subject: str, headers: Mapping[str, str], body: str, attachments: Sequence[str]
) -> Readable:
    """Return the text of a mail: the subject as a heading, then headers and body."""
    subject = " ".join(subject.split())
    shown = [f"{name}: {' '.join(value.split())}" for name, value in headers.items()]
    shown += [f"Attachments: {', '.join(attachments)}"] if attachments else []
    parts = [f"# {subject}" if subject else "", "\n".join(shown), body]
    return Readable(["\n\n".join(filter(None, parts))], parts=tuple(attachments))


def attachments(data: bytes) -> list[tuple[str, bytes]]:
    """Return the unique names and the contents of a mail's attachments.

    Text is converted to UTF-8 if the mail declares its charset. A mail within a mail is an
    attachment. At most `MAX_ATTACHMENTS` are returned.

    Raises:
        InvalidRequest: The file is not a mail.
    """

    def found() -> list[tuple[str, bytes]]:
        message = email.message_from_bytes(data, policy=email.policy.default)
        return [(name, content) for name, part in _attached(message) if (content := _content(part))]

    return reading("mail", found)


def _attached(message: EmailMessage) -> Iterator[tuple[str, EmailMessage]]:
    """Yield the attachments of a mail with their unique names."""
    parts = message.iter_attachments() if message.is_multipart() else iter(())
    some = list(islice(parts, MAX_ATTACHMENTS))
    yield from zip(attachment_names(map(_named, some)), some, strict=True)


def _named(part: EmailMessage) -> str:
    return part.get_filename() or (
        "mail.eml" if part.get_content_type() == "message/rfc822" else ""
    )


def attachment_names(given: Iterable[str]) -> list[str]:
    """Return unique names for attachments, without folders, in order."""
    names: list[str] = []
    for number, each in enumerate(given, 1):
        line = " ".join(clean_text(each).replace("\\", "/").split())
        name = PurePosixPath(line).name[-MAX_NAME_LENGTH:].lstrip(".") or f"attachment {number}"
        names.append(f"{number} {name}" if name in names else name)
    return names


def _content(part: EmailMessage) -> bytes:
    if part.is_multipart():  # A mail within a mail.
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


def _body(message: EmailMessage) -> tuple[str, tuple[str, ...]]:
    """Return the text of a mail, and its charset if that is unknown."""
    body = message.get_body(("plain", "html"))
    if body is None:
        return "", ()
    unread: tuple[str, ...] = ()
    try:
        text = body.get_content()
    except LookupError:  # a charset that does not exist
        data = body.get_payload(decode=True)
        text = data.decode(encoding_of(data, TEXT)[0], "replace") if isinstance(data, bytes) else ""
        unread = (f"the charset {body.get_content_charset()!r}",)
    if not isinstance(text, str):
        return "", ()
    is_page = body.get_content_subtype() == "html"
    return html.whole(text, "mail") if is_page else escaped(text), unread
