"""Uploaded files: stored whole or not at all, found until they are deleted or expire.

The rules are the same for a folder and for object storage.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from corral.api.errors import InvalidRequest, ProviderError, TooLarge, Unavailable
from corral.providers.base.config import RunConfig
from corral.providers.files.store import FileStore, StoredFile
from corral.providers.stack.stack import Stack
from corral.providers.state.tables import FILES

from .conftest import MOST, Place


class Clock:
    """A clock that a test sets."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


async def pieces(data: bytes, size: int = 65_536) -> AsyncIterator[bytes]:
    """Yield bytes as an upload brings them."""
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands still."""
    return Clock()


@pytest.fixture
def store(place: Place, clock: Clock) -> FileStore:
    """Return an empty store, with its blobs in each place and its table in each database."""
    return place.open(clock=clock)


async def add(store: FileStore, data: bytes = b"text", **given: object) -> StoredFile:
    """Store bytes under defaults."""
    options: dict[str, object] = {"filename": "notes.md", "purpose": "assistants", **given}
    return await store.add(pieces(data), **options)  # type: ignore[arg-type]


async def content_of(store: FileStore, file: StoredFile) -> bytes:
    """Return the bytes of a file."""
    return b"".join([piece async for piece in await store.read(file)])


async def test_equal_content_is_stored_once(store: FileStore, place: Place) -> None:
    """Two files of one content share a blob, which goes with the last of them.

    If this fails: deleting one of two equal files breaks the other, or blobs pile up.
    """
    first, second = await add(store), await add(store, filename="other.md")
    assert first.file_id != second.file_id
    assert place.names() == {second.blob}
    assert await content_of(store, first) == b"text"
    await store.delete(first.file_id)
    assert await content_of(store, second) == b"text"
    await store.delete(second.file_id)
    assert not place.names()


async def test_the_rest_of_a_too_large_file_is_not_read(store: FileStore) -> None:
    """Reading ends soon after the limit, however much the sender has.

    If this fails: a sender without end fills memory or disk.
    """
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 65_536
            yield bytes(65_536)

    with pytest.raises(TooLarge):
        await store.add(endless(), filename="zeros", purpose="assistants")
    assert read < MOST + 4_000_000


async def test_an_upload_that_breaks_off_leaves_nothing(store: FileStore, place: Place) -> None:
    """The sender's error is passed on, and so is a cancellation; the partial bytes go."""

    async def breaking() -> AsyncIterator[bytes]:
        yield b"x" * 2_000_000
        raise ConnectionResetError

    with pytest.raises((ProviderError, ConnectionResetError)):
        await store.add(breaking(), filename="a", purpose="assistants")

    async def hanging() -> AsyncIterator[bytes]:
        yield b"x" * 2_000_000
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await store.add(hanging(), filename="a", purpose="assistants")
    assert not place.names()
    assert await store.page() == ([], False)


@pytest.mark.parametrize("name", ["", "x" * 256])
async def test_bad_file_names_are_refused(store: FileStore, place: Place, name: str) -> None:
    """A name has 1 to 255 characters; any of them is only a label."""
    with pytest.raises(InvalidRequest, match="1 to 255"):
        await add(store, filename=name)
    outside = await add(store, filename="../../etc/passwd")
    assert outside.filename == "../../etc/passwd"


async def test_pages_cover_all_files_once(store: FileStore) -> None:
    """Pages in both orders hold each file once, also of equal times, and filters apply first.

    If this fails: a cursor on `created_at` skips or repeats files of one second.
    """
    files = [
        await add(store, bytes([n]), purpose="ab"[n % 2], tenant="xy"[n % 3 == 0]) for n in range(7)
    ]
    for order, expected in (("asc", files), ("desc", files[::-1])):
        found: list[StoredFile] = []
        more, after = True, None
        while more:
            page, more = await store.page(after=after, limit=3, order=order)  # type: ignore[arg-type]
            found, after = found + page, page[-1].file_id
        assert found == expected
    assert (await store.page(purpose="b", order="asc"))[0] == files[1::2]
    assert (await store.page(tenant="y", order="asc"))[0] == files[::3]
    assert await store.page(limit=7) == (files[::-1], False)
    with pytest.raises(InvalidRequest, match="no file 'file-x'"):
        await store.page(after="file-x")


async def test_a_killed_upload_leaves_nothing_behind(place: Place) -> None:
    """The sweep deletes what a killed process left: its partial upload, and a nameless blob.

    If this fails: each crash costs disk space forever.
    """
    clock = Clock()
    clock.now = time.time()
    store = place.open(clock=clock)
    whole = await add(store)
    place.put("uploads/partial", b"x")
    place.put(f"00/{'0' * 64}", b"x")
    before = place.names()
    await store.expire()
    assert place.names() == before  # they may be of a living process
    clock.now += 7200
    await store.expire()
    assert place.names() == {whole.blob}


async def test_an_upload_that_the_sweep_may_delete_becomes_no_file(
    store: FileStore, place: Place, clock: Clock
) -> None:
    """A process that was frozen between the last bytes and the file's row stores no file.

    If this fails: the sweep of another process deletes the bytes of a file that comes late.
    """

    async def freezing() -> AsyncIterator[bytes]:
        yield b"text"
        clock.now += 3600

    with pytest.raises(Unavailable, match="took too long"):
        await store.add(freezing(), filename="a", purpose="assistants")
    assert await store.page() == ([], False)


async def test_an_upload_repairs_files_of_equal_content(store: FileStore, place: Place) -> None:
    """Once the content is uploaded again, files with a damaged or lost blob are whole.

    If this fails: the advice of the error does not help.
    """
    file = await add(store)
    place.damage(file, b"text")
    await add(store)
    assert await content_of(store, file) == b"text"


async def test_blobs_without_an_id_in_their_name_are_read(store: FileStore, place: Place) -> None:
    """A blob of revision 0001, named by the SHA-256 only, is read until its file is deleted.

    If this fails: an upgrade loses all uploaded files.
    """
    file = await add(store)
    place.put(f"{file.sha256[:2]}/{file.sha256}", b"text")
    renamed = update(FILES).values(blob=FILES.c.sha256)
    await place.state.area("files").write(lambda table: table.execute(renamed))
    await store.delete((await add(store, b"other")).file_id)
    old = await store.get(file.file_id)
    assert (old.blob, await content_of(store, old)) == (file.sha256, b"text")
    await store.delete(file.file_id)
    assert place.names() == {file.blob}  # no file has named it since


UPLOADS = """
import asyncio, json, pathlib, sys
from corral.providers.base.file_config import FileSettings
from corral.providers.files.store import FileStore
from corral.providers.state.state import State

async def pieces(n):
    yield f"file {n % 3}".encode() * 1000

async def main(home, url, settings):
    folder, files = pathlib.Path(home), FileSettings(**json.loads(settings))
    store = FileStore.open(folder, State(folder, url), files)
    for n in range(100_000):
        file = await store.add(pieces(n), filename=str(n), purpose="assistants")
        if n % 2:
            await store.delete(file.file_id)
        print(n, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def uploading(place: Place) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process that adds and deletes files of the same few contents without end."""
    where = [str(place.home), place.state_url, json.dumps(place.settings)]
    command = [sys.executable, "-c", UPLOADS, *where]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


async def test_every_row_has_its_bytes_whatever_is_killed(
    uploading: subprocess.Popen[bytes], place: Place
) -> None:
    """Processes that add and delete equal contents, one of them killed, leave no row without bytes.

    If this fails: the blob of one process's new file is deleted with another's old one.
    """
    assert uploading.stdout is not None
    assert uploading.stdout.readline() == b"0\n"
    store = place.open()
    for n in range(60):
        file = await add(store, f"file {n % 3}".encode() * 1000)
        assert len(await content_of(store, file)) == file.bytes
        await store.delete(file.file_id)
    uploading.kill()
    uploading.wait()
    await place.open(clock=lambda: time.time() + 7200).expire()
    files, _ = await store.page()
    assert files
    for file in files:
        assert len(await content_of(store, file)) == file.bytes
    assert place.names() == {file.blob for file in files}


async def test_a_stack_has_files_and_makes_none_until_used(tmp_path: Path) -> None:
    """`Stack.files` takes `files.max_mib`; opening a stack writes no file of its own for it."""
    config = RunConfig.model_validate({"files": {"max_mib": 0.25}})
    stack = Stack(config, tmp_path)
    assert not (tmp_path / "blobs").exists()
    with pytest.raises(TooLarge, match=r"larger than 0\.25 MiB.*files\.max_mib"):
        await add(stack.files, bytes(2**18 + 1))
    await stack.close()
