"""The real model, loaded once for all tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.providers.embedding._local.embedder import LocalEmbedder
from corral.providers.embedding.minilm.config import MiniLMConfig
from corral.providers.embedding.minilm.embedder import create


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder whose graph cache is warm once `embedder` was used."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def embedder(home: Path) -> Iterator[LocalEmbedder]:
    """The embedder on the real weights."""
    provider = create("minilm", MiniLMConfig(threads=2), home)
    yield asyncio.run(provider.embedder("all-MiniLM-L6-v2"))
    asyncio.run(provider.close())
