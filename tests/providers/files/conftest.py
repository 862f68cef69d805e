"""The places of blobs that the tests run on: a folder, and a bucket of object storage."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from corral.providers.base.config import FileSettings
from corral.providers.files.store import FileStore

from ...object_storage import ObjectStorage

MIB = 2**20
MOST = 5_000_000
INSTALLATION = "a" * 32


async def installation() -> str:
    """Return the id of the installation of the tests."""
    return INSTALLATION


class Place(ABC):
    """A place of blobs.

    Attributes:
        settings: The settings of `files` for it.
    """

    settings: dict[str, Any]

    def __init__(self, home: Path) -> None:
        self.home = home

    def open(self, *, max_bytes: int = MOST, **options: Any) -> FileStore:
        """Return the files of a data folder with their blobs in this place."""
        settings = FileSettings.model_validate({"max_mib": max_bytes / MIB, **self.settings})
        return FileStore.open(self.home, settings, installation, **options)

    @abstractmethod
    def names(self) -> set[str]:
        """Return the last parts of the names of all blobs and uploads."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Store bytes by their name in the place, past Corral."""

    def damage(self, data: bytes) -> None:
        """Change the last byte of the blob of some bytes."""
        sha256 = hashlib.sha256(data).hexdigest()
        self.put(f"{sha256[:2]}/{sha256}", data[:-1] + bytes([data[-1] ^ 1]))


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

    def __init__(self, home: Path, storage: ObjectStorage) -> None:
        super().__init__(home)
        self.storage, self._bucket = storage, uuid4().hex
        self.settings = storage.bucket(self._bucket)

    def names(self) -> set[str]:
        return {key.rpartition("/")[2] for key in self.storage.keys(self._bucket)}

    def put(self, name: str, data: bytes) -> None:
        self.storage.put(self._bucket, f"corral/{INSTALLATION}/{name}", data)


@pytest.fixture(scope="session")
def storage() -> Iterator[ObjectStorage]:
    """Yield the object storage of the tests."""
    with ObjectStorage() as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> FolderPlace:
    """Return the folder of a data folder."""
    return FolderPlace(tmp_path)


@pytest.fixture
def bucket(tmp_path: Path, storage: ObjectStorage) -> BucketPlace:
    """Return a new bucket."""
    return BucketPlace(tmp_path, storage)


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest) -> Place:
    """Return each place in turn."""
    made: Place = request.getfixturevalue(request.param)
    return made
