"""Containers: the documents in a mail or an archive are stored with their own ids.

The container is a document as well: the text of a mail, or the names of the files in an archive.
The documents in it have its metadata and ACL, and `part_of` in their metadata names its id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from corral.api.errors import InvalidRequest
from corral.api.rag import URL, RAGDocument
from corral.api.wire import MAX_ID_LENGTH
from corral.providers.base.document_limits import DocumentLimits
from corral.providers.ingestion.read.parsing import ParsedDocument
from corral.providers.ingestion.read.reading import Reader

MAX_NAMED_PARTS = 20
"""Maximum number of names of parts in a container's metadata, which every context prints."""

Text = tuple[RAGDocument, ParsedDocument]
"""A document and its text."""


async def with_parts(
    reader: Reader,
    container: Text,
    content: str | bytes | Path | URL,
    mime_type: str | None,
    limits: DocumentLimits,
) -> list[Text]:
    """Return a container and the documents in it; its `unread` lists the unreadable ones.

    Args:
        reader: Reads the documents.
        container: The container, with the names of its parts.
        content: The content of the container, as for `Reader.parts`.
        mime_type: The type of the container, as for `Reader.parts`.
        limits: Limits; the maximum number of characters applies to all documents together.

    Raises:
        InvalidRequest: None of its files can be read, or together they exceed a limit.
    """
    document, parsed = container
    parts: dict[str, Text] = {}
    unread = list(parsed.unread)
    room = limits.max_characters - len(parsed.text)
    async for name, text in reader.parts(content, mime_type):
        document_id = f"{document.document_id}/{name}"
        if not isinstance(text, ParsedDocument):
            unread.append(f"{name} ({_reason(text.message)})")
            continue
        if len(document_id) > MAX_ID_LENGTH:
            unread.append(f"{name} (its path is too long)")
            continue
        room -= len(text.text)
        if room < 0:
            raise limits.exceeded("characters", "max_characters")
        unread += [f"{name}: {each}" for each in text.unread]
        parts[name] = _part(document, document_id, name, text), text
    if not parts and not parsed.title:
        raise InvalidRequest(
            f"None of its {len(parsed.parts or ())} files can be read: {', '.join(unread[:3])}.",
            field="mime_type",
        )
    names = {"parts": list(parts)[:MAX_NAMED_PARTS]} if parts else {}
    whole = replace(parsed, unread=tuple(unread), metadata={**parsed.metadata, **names})
    return [(document, whole), *parts.values()]


def _part(container: RAGDocument, document_id: str, name: str, text: ParsedDocument) -> RAGDocument:
    digest = hashlib.sha256(text.text.encode("utf-8", "surrogatepass")).hexdigest()
    return container.model_copy(
        update={
            "document_id": document_id,
            "content": URL(uri=f"data:;sha256,{digest}"),
            "mime_type": None,
            "metadata": _metadata(container, name),
        }
    )


def _metadata(container: RAGDocument, name: str) -> Mapping[str, Any]:
    metadata = {key: each for key, each in container.metadata.items() if key != "title"}
    for key in ("source", "filename"):
        if isinstance(metadata.get(key), str):
            metadata[key] = f"{metadata[key]}/{name}"
    return {**metadata, "part_of": container.document_id}


def _reason(message: str) -> str:
    reason = message.removeprefix("The file is ").rstrip(".")
    return reason[:1].lower() + reason[1:]
