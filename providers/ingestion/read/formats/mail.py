"""A mail: its subject a heading, who wrote to whom and when, its text. RFC 5322."""

from __future__ import annotations

import email
import email.policy
from email.message import EmailMessage

from corral.api.errors import InvalidRequest
from corral.providers.ingestion.read.formats import html
from corral.providers.ingestion.read.formats.common import Readable, escaped, reading

_SHOWN = ("From", "To", "Cc", "Date")
_HEADERS = {"from", "to", "subject", "date", "received", "message-id", "return-path"}


def read(data: bytes) -> Readable:
    """Return the text of a mail; its attachments are counted.

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
    attached = sum(1 for _ in message.iter_attachments()) if message.is_multipart() else 0
    text = "\n\n".join(
        filter(None, [f"# {subject}" if subject else "", "\n".join(shown), _body(message)])
    )
    return Readable([text], unread=(f"{attached} attachments",) if attached else ())


def _body(message: EmailMessage) -> str:
    body = message.get_body(("plain", "html"))
    if body is None:
        return ""
    text = body.get_content()
    if not isinstance(text, str):
        return ""
    return html.whole(text, "mail") if body.get_content_subtype() == "html" else escaped(text)
