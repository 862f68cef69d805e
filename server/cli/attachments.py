"""Attachments of a mail: documents below it that name it, as the mail names them."""

from __future__ import annotations

import dataclasses

from corral.api.errors import InvalidRequest
from corral.providers.ingestion.read import compression
from corral.providers.ingestion.read.detecting import MAIL, TEXT, detected, type_of
from corral.providers.ingestion.read.formats.mail import split_attachments
from corral.providers.sources.file_names import left_out
from corral.server.cli.failures import JSON
from corral.server.cli.files import (
    BadFileError,
    ReadOptions,
    Report,
    SkippedFileError,
    SourceFile,
    document_of,
    skip_reason,
)


def attachments_of(
    mail: SourceFile, document: JSON, options: ReadOptions, report: Report
) -> list[tuple[SourceFile, JSON]]:
    """Return the attachments of a mail as documents, and name them in the mail's metadata.

    Attachments that are left out go to the report.

    Args:
        mail: The file.
        document: The mail as `read_document` returns it; its metadata gets `attachments`.
        options: The options of the mail; its title is not the attachments'.
        report: Gets the attachments that are skipped, with the reason.
    """
    if document["mime_type"] != MAIL:
        return []
    try:
        _, contents = split_attachments(compression.unpacked(mail.path.read_bytes()))
    except (InvalidRequest, OSError):
        return []  # The server says what is wrong with the mail.
    options = dataclasses.replace(options, title=None)
    attached = []
    for name, data in contents.items():
        file = dataclasses.replace(
            mail,
            path=mail.path / name,
            document_id=f"{mail.document_id}/{name}",
            source=f"{mail.source}/{name}",
            size=len(data),
        )
        try:
            attached.append(_document(file, data, options, report))
        except SkippedFileError as reason:
            report.skipped.append((file.source, str(reason)))
        except BadFileError as reason:
            report.failed.append((file.source, str(reason)))
    if attached:
        document["metadata"].setdefault("attachments", [each.path.name for each, _ in attached])
    for _, each in attached:
        each["metadata"].setdefault("mail", mail.document_id)
    return attached


def _document(
    file: SourceFile, data: bytes, options: ReadOptions, report: Report
) -> tuple[SourceFile, JSON]:
    name = file.path.name
    is_text = options.is_text(file.path)
    if not is_text and (kind := left_out(name)):
        raise SkippedFileError(f"{kind}; --as-text NAME takes it")
    try:
        data = compression.unpacked(data)
        kind = TEXT if is_text else type_of(name) or detected(data, "")
    except InvalidRequest as error:
        raise SkippedFileError(skip_reason(error)) from None
    file = dataclasses.replace(file, mime_type=kind)
    return file, document_of(file, data, options, report)
