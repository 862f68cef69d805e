"""The embedder that the tests of syncs watch."""

from ..ingestion.conftest import embedder

__all__ = ["embedder"]
