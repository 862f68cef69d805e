"""Blobs: read whole or not at all; and what holds for object storage only."""

from __future__ import annotations

import asyncio
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from corral.api.errors import ConfigError, MissingDependency, NotFound, ProviderError, Unavailable
from corral.providers.base.file_config import FileSettings
from corral.providers.files.store import FileStore
from corral.providers.state.state import State

from ...object_storage import SECRET
from .conftest import MIB, BucketPlace, Place
from .test_store import add, content_of, pieces

LARGE = bytes(range(256)) * (20 * MIB // 256)
"""Several parts of an upload."""


async def collect(content: AsyncIterator[bytes], pieces: list[bytes]) -> None:
    """Append the pieces of a content to a list, up to an error."""
    async for piece in content:
        pieces.append(piece)


async def test_a_large_file_comes_back_as_it_was(place: Place, tmp_path: Path) -> None:
    """Content of several parts is the same when it is read, as a stream and as a file."""
    store = place.open(max_bytes=len(LARGE))
    file = await add(store, LARGE)
    assert await content_of(store, file) == LARGE
    async with store.local(file) as path:
        assert path.read_bytes() == LARGE
    assert place.names() == {file.blob}


async def test_damaged_content_never_comes_whole(place: Place) -> None:
    """The end of content with another checksum is missing, with an error; a copy is refused.

    If this fails: a broken disk or a bucket that others write to changes answers silently.
    """
    store = place.open(max_bytes=len(LARGE))
    for data in (b"text", LARGE[: 3 * MIB + 1]):
        file = await add(store, data)
        place.damage(file, data)
        read: list[bytes] = []
        with pytest.raises(ProviderError, match="checksum"):
            await collect(await store.read(file), read)
        assert len(b"".join(read)) < len(data)
        with pytest.raises(ProviderError, match="checksum"):
            async with store.local(file):
                pass


async def test_content_that_is_gone_is_an_error(place: Place) -> None:
    """A file whose blob was removed by others is an error; one that was deleted is not found."""
    store, other = place.open(), place.open()
    file = await add(store)
    await other.delete(file.file_id)
    with pytest.raises(NotFound):
        await store.read(file)
    with pytest.raises(NotFound):
        async with store.local(file):
            pass


async def test_an_upload_is_never_whole_in_memory(bucket: BucketPlace) -> None:
    """Python holds a few parts of an upload and of a download, however large the file is."""
    store = bucket.open(max_bytes=80 * MIB)

    async def zeros() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield bytes(MIB)

    tracemalloc.start()
    try:
        file = await store.add(zeros(), filename="zeros", purpose="assistants")
        async for _ in await store.read(file):
            pass
        assert tracemalloc.get_traced_memory()[1] < 32 * MIB
    finally:
        tracemalloc.stop()


async def test_a_service_that_is_away_is_unavailable_and_then_whole_again(
    bucket: BucketPlace,
) -> None:
    """While it does not answer, everything is an error that may be repeated; nothing is lost.

    If this fails: an outage of seconds leaves a file without its bytes, or a request that hangs.
    """
    store = bucket.open()
    before = await add(store)
    bucket.settings["timeout_seconds"] = 1
    hasty = bucket.open()
    with bucket.storage.frozen():
        for call in (
            add(hasty, b"other"),
            hasty.read(before),
            hasty.check(),
        ):
            with pytest.raises(Unavailable, match="object storage"):
                await call
        await hasty.delete(before.file_id)
    await store.check()
    files, _ = await store.page()
    assert not files
    after = await add(store, b"other")
    assert await content_of(store, after) == b"other"
    await bucket.open(clock=lambda: time.time() + 7200).expire()
    assert bucket.names() == {after.blob}


async def test_nothing_waits_for_an_upload_or_a_deletion(bucket: BucketPlace) -> None:
    """While the service does not answer, other files are recorded and deleted.

    If this fails: a slow bucket stops every request that writes in the table of files.
    """
    store, area = bucket.open(), bucket.state.area("files")
    file = await add(store)
    with bucket.storage.frozen():
        calls = [
            asyncio.create_task(store.delete(file.file_id)),
            asyncio.create_task(add(store, b"other")),
        ]
        for _ in range(20):
            await area.write(lambda table: None)
            await asyncio.sleep(0.05)
        assert await store.page() == ([], False)
        assert not any(call.done() for call in calls)
    await asyncio.gather(*calls)
    [other], _ = await store.page()
    assert bucket.names() == {other.blob}


async def test_installations_share_a_bucket(bucket: BucketPlace, tmp_path: Path) -> None:
    """The sweep of one leaves the blobs of the other alone, also of equal content.

    If this fails: two Corrals on one bucket delete each other's files.
    """

    store = bucket.open()
    file = await add(store)
    settings = FileSettings.model_validate(bucket.settings)
    state = State(tmp_path / "other")
    other = FileStore.open(tmp_path / "other", state, settings)
    same = await other.add(pieces(b"text"), filename="x", purpose="assistants")
    await other.delete(same.file_id)
    await other.expire()
    await state.close()
    assert await content_of(store, file) == b"text"


async def test_a_missing_bucket_is_named(bucket: BucketPlace) -> None:
    """An upload to a bucket that does not exist says so, and cannot be repeated."""
    bucket.settings["url"] = "s3://no-such-bucket"
    store = bucket.open()
    with pytest.raises(ProviderError, match="no such bucket") as raised:
        await add(store)
    assert not raised.value.retryable


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "ftp://bucket"},
        {"url": "s3://key:secret@bucket"},
        {"url": "s3://bucket?x=y"},
        {"endpoint": "http://127.0.0.1:9000"},
        {"url": "s3://bucket", "endpoint": "127.0.0.1:9000"},
        {"url": "s3://bucket", "max_mib": 6_000},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    """An address that is none, credentials in it, and options without it are refused."""
    with pytest.raises(ValidationError):
        FileSettings.model_validate(wrong)


async def test_secrets_are_shown_nowhere(bucket: BucketPlace) -> None:
    """An unknown option is an error without a value, and settings show asterisks."""
    settings = FileSettings.model_validate(bucket.settings)
    assert SECRET not in settings.model_dump_json() + repr(settings)
    bucket.settings["options"] = {"secret_key_of_mine": SECRET}
    with pytest.raises(ConfigError, match=r"files\.options") as raised:
        bucket.open()
    assert SECRET not in str(raised.value)


async def test_a_missing_package_is_named(
    bucket: BucketPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without obstore, the error is the command that installs it."""
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(MissingDependency, match=r"corral-rag\[object-storage\]"):
        bucket.open()
