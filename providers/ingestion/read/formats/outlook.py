"""Read mails saved by Outlook (.msg, MS-OXMSG): text and attachments, as of any mail."""

from __future__ import annotations

import io
from typing import Any

from corral.providers.ingestion.read.formats import html
from corral.providers.ingestion.read.formats.common import Readable, escaped, package, reading
from corral.providers.ingestion.read.formats.mail import (
    MAX_ATTACHMENTS,
    SHOWN,
    as_mail,
    attachment_names,
)


def read(data: bytes, limits: object) -> Readable:
    """Return the text of a mail, with the names of its attachments.

    Raises:
        MissingDependency: python-oxmsg is not installed, or lxml for a mail with HTML only.
        InvalidRequest: The file is broken, or is not a mail.
    """
    oxmsg = package("oxmsg", "python-oxmsg", "Outlook")
    return reading("Outlook", lambda: _read(_message(oxmsg, data)))


def attachments(data: bytes) -> list[tuple[str, bytes]]:
    """Return the unique names and the contents of a mail's attachments.

    Raises:
        MissingDependency: python-oxmsg is not installed.
        InvalidRequest: The file is broken, or is not a mail.
    """
    oxmsg = package("oxmsg", "python-oxmsg", "Outlook")
    return reading("Outlook", lambda: _attachments(_message(oxmsg, data)))


def _message(oxmsg: Any, data: bytes) -> Any:
    return oxmsg.Message.load(io.BytesIO(data))


def _read(message: Any) -> Readable:
    headers = {name.lower(): value for name, value in message.message_headers.items()}
    recipients = [each.email_address or each.name for each in message.recipients]
    headers.setdefault("from", message.sender or "")
    headers.setdefault("to", ", ".join(filter(None, recipients)))
    headers.setdefault("date", str(message.sent_date or ""))
    shown = {name: str(headers[name.lower()]) for name in SHOWN if headers.get(name.lower())}
    body = escaped(message.body) if message.body else ""
    if not body and message.html_body:
        body = html.whole(message.html_body, "Outlook")
    read = as_mail(message.subject, shown, body, [name for name, _ in _attachments(message)])
    count = sum(each.file_bytes is None for each in message.attachments)
    return Readable(read.pages, parts=read.parts, unread=(f"{count} attached items",) * bool(count))


def _attachments(message: Any) -> list[tuple[str, bytes]]:
    """Return the names and contents of attached files; Outlook items have no bytes."""
    files = [each for each in message.attachments if each.file_bytes][:MAX_ATTACHMENTS]
    names = attachment_names(each.file_name or "" for each in files)
    return [(name, each.file_bytes) for name, each in zip(names, files, strict=True)]
