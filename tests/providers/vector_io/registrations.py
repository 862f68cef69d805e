"""The registration of a vector DB, for the tests of engines."""

from __future__ import annotations

from typing import Any

from corral.api.vector_dbs import VectorDB


def registration(provider_id: str, identifier: str = "db", **settings: Any) -> VectorDB:
    """Return a registration; what is not set is as it is by default."""
    return VectorDB.model_validate(
        {
            "identifier": identifier,
            "provider_id": provider_id,
            "provider_resource_id": identifier,
            "embedding_model": "none",
            "embedding_dimension": 2,
            **settings,
        }
    )
