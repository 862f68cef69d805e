"""Convert rows of tables to documents."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from corral.api.errors import InvalidRequest
from corral.api.rag import RAGDocument
from corral.api.wire import TextItem
from corral.providers.ingestion.read.records import Record

MAX_NAMED_ROWS = 5


def row_documents(
    rows: Sequence[tuple[str, Record | str]], filename: str = ""
) -> list[RAGDocument]:
    """Return the documents of rows, with the file's name as `source` in their metadata.

    Raises:
        InvalidRequest: Rows cannot be converted; the message names the first ones.
    """
    bad = [f"{place}: {reason}" for place, reason in rows if isinstance(reason, str)]
    made = []
    for place, record in rows:
        if isinstance(record, Record):
            source = {"source": filename} if filename else {}
            try:
                document = RAGDocument(
                    document_id=record.document_id,
                    content=TextItem(type="text", text=record.text),  # Never read as an address.
                    mime_type="text/plain",
                    metadata=source | record.metadata,
                )
            except ValidationError as error:
                bad.append(f"{place}: {error.errors()[0]['msg']}")
            else:
                made.append(document)
    if bad:
        more = f" and {len(bad) - MAX_NAMED_ROWS:,} more" if len(bad) > MAX_NAMED_ROWS else ""
        raise InvalidRequest(
            f"Rows make no documents: {'; '.join(bad[:MAX_NAMED_ROWS])}{more}.",
            hint="Nothing was queued: mend the rows, or leave them out.",
            field="records",
        )
    return made
