"""The places of blobs that the tests run on: a folder, and a bucket of object storage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from corral.providers.base.file_config import FileSettings
from corral.providers.files.store import FileStore, StoredFile
from corral.providers.state.state import State

from ...object_storage import ObjectStorage

MIB = 2**20
MOST = 5_000_000


class Place(ABC):
    """A place of blobs, with the table of their files.

    Attributes:
        settings: The settings of `files` for it.
    """

    settings: dict[str, Any]

    def __init__(self, home: Path, state_url: str) -> None:
        self.home, self.state_url = home, state_url
        self.state = State(home, state_url)

    def open(self, *, max_bytes: int = MOST, **options: Any) -> FileStore:
        """Return the files of a data folder with their blobs in this place."""
        settings = FileSettings.model_validate({"max_mib": max_bytes / MIB, **self.settings})
        return FileStore.open(self.home, self.state, settings, **options)

    @abstractmethod
    def names(self) -> set[str]:
        """Return the last parts of the names of all blobs and uploads."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Store bytes by their name in the place, past Corral."""

    def damage(self, file: StoredFile, data: bytes) -> None:
        """Change the last byte of a file's blob, which has these bytes."""
        self.put(f"{file.blob[:2]}/{file.blob}", data[:-1] + bytes([data[-1] ^ 1]))


class FolderPlace(Place):
    """The folder `blobs` in the data folder."""

    settings: dict[str, Any] = {}  # noqa: RUF012 - nothing changes it

    def names(self) -> set[str]:
        return {path.name for path in (self.home / "blobs").rglob("*") if path.is_file()}

    def put(self, name: str, data: bytes) -> None:
        path = self.home / "blobs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


class BucketPlace(Place):
    """A new bucket of the server."""

    def __init__(self, home: Path, state_url: str, storage: ObjectStorage) -> None:
        super().__init__(home, state_url)
        self.storage, self._bucket = storage, uuid4().hex
        self.settings = storage.bucket(self._bucket)

    def names(self) -> set[str]:
        return {key.rpartition("/")[2] for key in self.storage.keys(self._bucket)}

    def put(self, name: str, data: bytes) -> None:
        self.storage.put(self._bucket, f"corral/{self.state.recorded_installation()}/{name}", data)


@pytest.fixture(scope="session")
def storage() -> Iterator[ObjectStorage]:
    """Yield the object storage of the tests."""
    with ObjectStorage() as running:
        yield running


@pytest.fixture
async def bucket(tmp_path: Path, storage: ObjectStorage) -> AsyncIterator[BucketPlace]:
    """Yield a new bucket."""
    made = BucketPlace(tmp_path, "sqlite", storage)
    yield made
    await made.state.close()


@pytest.fixture(params=["folder", "bucket"])
async def place(
    request: pytest.FixtureRequest, tmp_path: Path, state_url: str
) -> AsyncIterator[Place]:
    """Yield each place in turn, with the table in each database."""
    if request.param == "folder":
        made: Place = FolderPlace(tmp_path, state_url)
    else:
        made = BucketPlace(tmp_path, state_url, request.getfixturevalue("storage"))
    yield made
    await made.state.close()
