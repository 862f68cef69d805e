"""The part of the configuration that names sources and the vector DBs they fill."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from corral.api.chunks import Acl
from corral.api.wire import Metadata
from corral.providers.base.server_config import Section


class SyncEntry(Section):
    """A source, and the vector DB that is kept in sync with it."""

    name: str = Field(
        min_length=1, max_length=255, description="Its name in `corral sync DB NAME`."
    )
    vector_db_id: str = Field(min_length=1, max_length=255, description="The vector DB to fill.")
    source: dict[str, Any] = Field(
        description="`type`, and the settings of a source of this type; see docs/sources.md."
    )
    every_minutes: float | None = Field(
        default=None,
        ge=1,
        le=525_600,
        description="Pause between two runs of the server, the first at its start. null: only "
        "when asked.",
    )
    tenant: str = Field(default="", description="Tenant of the vector DB.")
    prefix: str = Field(
        default="", max_length=200, description="Put before the document ids, such as `handbook/`."
    )
    acl: Acl | None = Field(
        default=None, description="Who may read the documents. null: the vector DB's default."
    )
    metadata: Metadata = Field(default_factory=dict, description="Metadata of every document.")
    pictures: bool = Field(
        default=False, description="True to read pictures, by text recognition (`rag.ocr`)."
    )
    replace: bool = Field(
        default=False, description="Whether documents of the same ids from elsewhere are replaced."
    )
