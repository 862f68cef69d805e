"""Object storage as a source, through the protocol of S3."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from corral.api.errors import MissingDependency
from corral.providers.sources.registry import build_source, check_source

from ..ingestion.jobs_stack import opened
from .places import Bucket, running
from .test_sync import counts, failure, run, stored


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    """Run an S3 server with five documents, in three pages of a listing."""
    made = Bucket()
    for number in range(5):
        made.put(f"{number}.txt", f"Text {number}.")
    with running(made.answer) as made.url:
        yield made


async def test_a_listing_of_several_pages(bucket: Bucket, tmp_path: Path) -> None:
    """All pages count; if one fails, nothing is deleted, and unchanged objects are not read."""
    sync = {"name": "mine", "vector_db_id": "db", "source": bucket.settings}
    async with opened(tmp_path / "home", sync=[sync]) as stack:
        assert counts(await run(stack)) == (5, 0, 0, 0)
        bucket.broken_page = 2
        assert "cannot be read" in await failure(stack)
        assert len(await stored(stack)) == 5
        bucket.broken_page = None
        bucket.requests.clear()
        assert counts(await run(stack)) == (0, 5, 0, 0)
        assert set(bucket.requests) == {"/bucket"}


def test_without_the_package(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the command that installs it."""

    def absent(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)
    with pytest.raises(MissingDependency, match=r"corral-rag\[object-storage\]"):
        build_source(bucket.settings, "sync", tmp_path)


def test_options_are_masked(bucket: Bucket) -> None:
    """No value of `options` appears in what shows the settings."""
    _, config = check_source(bucket.settings, "sync")
    assert "very-secret" not in f"{config!r}{config.model_dump(mode='json')}"
