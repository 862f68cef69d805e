"""The embedder that the tests of jobs watch."""

from __future__ import annotations

import pytest

from corral.providers.embedding.hashing.embedder import HashingEmbedder

from .jobs_stack import Watched


@pytest.fixture
def embedder(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Return the embedder that all stacks use."""
    watched = Watched()
    monkeypatch.setattr(HashingEmbedder, "embed_documents", watched.method())
    return watched
