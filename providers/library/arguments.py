"""Check the arguments of the Python library, and convert them for the stack.

Every function raises InvalidRequest for an invalid argument.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from corral.api.errors import InvalidRequest
from corral.api.options import checked
from corral.api.rag import RAGDocument, RAGQueryConfig
from corral.api.vector_dbs import SplitOn
from corral.api.wire import NullsAreDefaults
from corral.providers.ingestion.read.detecting import TITLED, type_of

Documents = Mapping[str, str] | Iterable[RAGDocument]
"""Texts by document id, or whole documents."""


class InsertSettings(NullsAreDefaults):
    """Options of an insert; see `Corral.insert`."""

    chunk_size_in_tokens: int | None = None
    overlap_in_tokens: int | None = None
    split_on: SplitOn | None = None
    skip_unchanged: bool = False


def content_of(path: Path) -> bytes:
    """Return the content of a local file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.", field="paths") from None


def document_of_file(path: Path, metadata: Mapping[str, Any]) -> RAGDocument:
    """Read a file as a document with the file's name as its id.

    Args:
        path: A local file.
        metadata: The document's metadata; without a title, formats that have none use the file's
            name.
    """
    kind = type_of(path.name) or ""
    data = base64.b64encode(content_of(path)).decode("ascii")
    about = {"source": path.name} | ({} if kind in TITLED else {"title": path.stem})
    fields = {"content": {"uri": f"data:{kind};base64,{data}"}, "metadata": {**about, **metadata}}
    return checked(RAGDocument, {"document_id": path.name, **fields})


def question_of(question: object) -> str:
    """Return a question if it is a string."""
    if not isinstance(question, str):
        raise InvalidRequest(
            f"question must be a string (got {type(question).__name__}).", field="question"
        )
    return question


def context_options(max_tokens: int, options: Mapping[str, Any]) -> RAGQueryConfig:
    """Return the options of a question; errors call the budget `max_tokens`."""
    try:
        return checked(RAGQueryConfig, {"max_tokens_in_context": max_tokens, **options})
    except InvalidRequest as error:
        if error.field != "max_tokens_in_context" or error.field in options:
            raise
        message = error.message.replace(error.field, "max_tokens", 1)
        raise InvalidRequest(message, hint=error.hint, field="max_tokens") from None


def name_of(vector_db_id: object) -> str:
    """Return the id of a vector DB if it is a string."""
    if not isinstance(vector_db_id, str):
        raise InvalidRequest(
            f"A vector DB's id must be a string (got {type(vector_db_id).__name__}).",
            hint='`ask` takes several one after the other: ask("...", "notes", "mail").'
            if isinstance(vector_db_id, Iterable)
            else "",
            field="vector_db_id",
        )
    return vector_db_id


def documents_of(documents: object) -> list[RAGDocument]:
    """Return texts by document id, or an iterable of documents, as documents."""
    if isinstance(documents, Mapping):
        return [_document(name, text) for name, text in documents.items()]
    # Both can be iterated over, but are not documents.
    if isinstance(documents, str | RAGDocument) or not isinstance(documents, Iterable):
        raise _no_documents("documents", "a mapping of texts by id, or a list", documents)
    listed = list(documents)
    for number, each in enumerate(listed):
        if not isinstance(each, RAGDocument):
            raise _no_documents(f"documents[{number}]", "a RAGDocument", each)
    return listed


def _no_documents(where: str, wanted: str, found: object) -> InvalidRequest:
    return InvalidRequest(
        f"{where} must be {wanted} (got {type(found).__name__}).",
        hint='Send {"fence.md": "A fence ..."}, or a list of RAGDocument.',
        field=where,
    )


def _document(name: object, text: object) -> RAGDocument:
    try:
        return checked(RAGDocument, {"document_id": name, "content": text})
    except InvalidRequest as error:
        message = f"Document {str(name)[:255]!r}: {error.message}"
        raise InvalidRequest(message, hint=error.hint, field=error.field) from None
