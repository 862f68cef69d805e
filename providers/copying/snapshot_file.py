"""Snapshots: a vector DB as one file, from any backend to any other.

A snapshot is an uncompressed zip file, so its members' sizes are their true sizes:

* `chunks/000000.jsonl`, ...: one chunk per line, ascending by id, without its embedding.
* `embeddings/000000.npy`, ...: their embeddings, float32, shape (n, dimension), in the same order.
* `manifest.json`, last: format, version, registration, and the size and SHA-256 of each member.

It can be read with any zip tool, a JSON parser and `numpy.load`. It is written sequentially, so it
can be streamed with one batch in memory. The digests detect damage by disks and transfers, but they
are not a signature: a person who can change the file can change the digests as well.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from corral.api.chunks import Chunk
from corral.api.errors import InvalidRequest
from corral.api.findings import first_finding
from corral.api.vector_dbs import SearchSettings

FORMAT = "corral-snapshot"
VERSION = 1

MOST_MEMBER_BYTES = 256 << 20
"""Maximum size of a member, in bytes."""

MANIFEST = "manifest.json"
SETTINGS = (*SearchSettings.model_fields, "embedding_model", "embedding_dimension")
"""Fields of a registration that a copy keeps."""


class Member(BaseModel):
    """A file in the snapshot."""

    model_config = ConfigDict(extra="forbid")

    name: str
    bytes: int = Field(ge=0, le=MOST_MEMBER_BYTES)
    sha256: str


class Details(BaseModel):
    """Fields of a vector store that its vector DB does not have."""

    model_config = ConfigDict(extra="forbid")

    description: str | None = None
    metadata: dict[str, str] | None = None
    expires_after_days: int | None = Field(default=None, ge=1, le=365)


class Manifest(BaseModel):
    """The description of a snapshot: the contents of `manifest.json`."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["corral-snapshot"] = "corral-snapshot"
    version: Literal[1] = 1
    made_by: str
    vector_db_id: str
    provider_id: str = Field(description="Where it came from.")
    vector_db_name: str | None = None
    fingerprint: str | None = None
    vector_store: Details = Details()
    settings: dict[str, Any]
    chunks: int = Field(ge=0)
    changed_meanwhile: bool = Field(
        description="Whether chunks were added or removed while it was written."
    )
    members: list[Member]


def names_of(number: int) -> tuple[str, str]:
    """Return the names of a batch's two members."""
    return f"chunks/{number:06}.jsonl", f"embeddings/{number:06}.npy"


class Snapshot:
    """A verified snapshot: its manifest and its chunks.

    Args:
        file: A seekable file, open for reading. The constructor reads all of it.

    Raises:
        InvalidRequest: The file is not a snapshot, has a newer version, or is truncated or damaged;
            the message names the reason.
    """

    def __init__(self, file: BinaryIO) -> None:
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, OSError, ValueError):
            raise InvalidRequest(
                "The file is not a snapshot, or it is truncated.",
                hint="Make one: corral export DB FILE.",
                field="file",
            ) from None
        self._size = file.seek(0, io.SEEK_END)
        self._infos = {info.filename: info for info in self._zip.infolist()}
        self.manifest = _parsed(self._read(MANIFEST))
        self._check_members()

    def batches(self) -> Iterator[tuple[list[Chunk], NDArray[np.float32]]]:
        """Yield chunks and their embeddings, batch by batch, ascending by id.

        Raises:
            InvalidRequest: A chunk or an array is malformed.
        """
        names = [member.name for member in self.manifest.members]
        dimension = self.manifest.settings.get("embedding_dimension")
        last, count = "", 0
        for chunks_name, rows_name in zip(names[::2], names[1::2], strict=True):
            chunks = _chunks(self._read(chunks_name), chunks_name)
            rows = _rows(self._read(rows_name), rows_name, (len(chunks), dimension))
            for chunk in chunks:
                if chunk.chunk_id <= last:
                    raise _damaged(f"{chunks_name}: ids are not in ascending order")
                last = chunk.chunk_id
            count += len(chunks)
            yield chunks, rows
        if count != self.manifest.chunks:
            raise _damaged(f"it has {count} chunks and says {self.manifest.chunks}")

    def _check_members(self) -> None:
        """Check every member's size and digest against the manifest."""
        members = self.manifest.members
        expected = [name for n in range((len(members) + 1) // 2) for name in names_of(n)]
        if [member.name for member in members] != expected:
            raise _damaged("its manifest does not list chunks and embeddings in turn")
        found = [info.filename for info in self._zip.infolist()]
        if sorted(found) != sorted([*expected, MANIFEST]):
            raise _damaged("it holds other members than its manifest says")
        for member in members:
            if self._infos[member.name].file_size != member.bytes:
                raise _damaged(f"{member.name} does not have the size in its manifest")
        if sum(member.bytes for member in members) > self._size:
            raise _damaged("its members overlap")
        for member in members:
            if hashlib.sha256(self._read(member.name)).hexdigest() != member.sha256:
                raise _damaged(f"{member.name} does not have the SHA-256 in its manifest")

    def _read(self, name: str) -> bytes:
        info = self._infos.get(name)
        if info is None:
            raise _damaged(f"it has no {name}")
        if info.compress_type != zipfile.ZIP_STORED or info.file_size > MOST_MEMBER_BYTES:
            raise _damaged(f"{name} is compressed, or larger than {MOST_MEMBER_BYTES >> 20} MiB")
        # zipfile raises RuntimeError for encrypted files and NotImplementedError for unknown
        # formats.
        try:
            return self._zip.read(info)
        except (zipfile.BadZipFile, OSError, EOFError, RuntimeError, NotImplementedError):
            raise _damaged(f"{name} cannot be read") from None


def _parsed(raw: bytes) -> Manifest:
    """Parse a manifest, after checking its version."""
    try:
        told = json.loads(raw)
        version = told["version"] if told["format"] == FORMAT else None
    except (ValueError, TypeError, KeyError, RecursionError):
        version = None
    if not isinstance(version, int):
        raise _damaged("its manifest is not a snapshot's")
    if version > VERSION:
        raise InvalidRequest(
            f"The snapshot has version {version}, this Corral reads {VERSION}.",
            hint="Upgrade Corral.",
            field="file",
        )
    try:
        return Manifest.model_validate(told)
    except ValidationError as error:
        path, words = first_finding(error)
        raise _damaged(f"its manifest is malformed ({path}: {words})") from None


def _chunks(raw: bytes, name: str) -> list[Chunk]:
    try:
        return [Chunk.model_validate_json(line) for line in raw.splitlines()]
    except ValidationError:
        raise _damaged(f"{name} holds a malformed chunk") from None


def _rows(raw: bytes, name: str, shape: tuple[int, object]) -> NDArray[np.float32]:
    try:
        rows = np.load(io.BytesIO(raw), allow_pickle=False)
    except (ValueError, EOFError, OSError):
        raise _damaged(f"{name} is not an array") from None
    if not isinstance(rows, np.ndarray) or rows.dtype != np.float32 or rows.shape != shape:
        raise _damaged(f"{name} is not a float32 array of shape {shape}")
    return rows


def _damaged(what: str) -> InvalidRequest:
    return InvalidRequest(
        f"The snapshot is damaged: {what}.",
        hint="Nothing was imported. Copy the file again, or use another backup.",
        field="file",
    )
