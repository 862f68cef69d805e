"""The stored form of a base: a file beside the chunk file, with a layout version."""

from __future__ import annotations

import json
import logging
import os
import time
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import apsw
import numpy as np

from corral.providers.base.disk import whole_file
from corral.providers.vector_io.store.changes import read_state
from corral.providers.vector_io.store.covered_rows import rows_still_there
from corral.providers.vector_io.store.faiss.base import Base
from corral.providers.vector_io.store.faiss.client import ApproximateIndex, Hnsw, Ivf, faiss
from corral.providers.vector_io.store.faiss.config import IndexConfig
from corral.providers.vector_io.store.recall import LowRecall

KINDS: Mapping[str, type[ApproximateIndex]] = {"hnsw": Hnsw, "ivf": Ivf}
FORMAT = 1
CRC_BYTES = 4
READ_BYTES = 2**20
STALE_SECONDS = 3600.0
"""Age at which a half-written file must come from a killed process."""

logger = logging.getLogger(__name__)


class BaseFile:
    """Stores a base on disk, as a cache that can be rebuilt from the chunk file.

    A new file replaces the old one by renaming, so a killed writer never leaves half a file. A file
    is used only if its checksum is right and its rows and norms agree with the chunk file; a
    damaged file, or one for another chunk file, is ignored.

    The layout: a line of JSON, row numbers (int64), squared norms (float64), FAISS's own format,
    and a CRC-32 of everything before it.

    Args:
        settings: The settings of the base; a file with other settings is not used.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], config: IndexConfig) -> None:
        self._path = path
        self._settings = {"format": FORMAT, "faiss": faiss.__version__, **settings}
        self._config = config
        self._seen: tuple[int, int] | None = None

    def load(self, connection: apsw.Connection) -> Base | LowRecall | None:
        """Return the base or the refusal in the file, or None if it has no newer, valid one.

        Args:
            connection: In a read transaction on the chunk file.
        """
        try:
            with self._path.open("rb") as file:
                stamp = _stamp(file)
                if stamp == self._seen:
                    return None
                self._seen = stamp
                if not _is_whole(file):  # FAISS must never see damaged bytes: it would crash.
                    logger.warning("%s is damaged; it will be rebuilt", self._path.name)
                    return None
                return self._read(connection, file)
        except FileNotFoundError:
            return None

    def save(self, base: Base | LowRecall) -> None:
        """Replace the base in the file, or the refusal.

        Raises:
            OSError: The folder cannot be written to, or the disk is full; the old file stays.
        """
        self._sweep(STALE_SECONDS)
        with whole_file(self._path) as file:
            self._write(base, file)
            file.flush()
            stamp = _stamp(file)
        self._seen = stamp

    def delete(self) -> None:
        """Delete the file, and temporary files that killed processes left."""
        self._path.unlink(missing_ok=True)
        self._sweep(0.0)

    def _sweep(self, older_than_seconds: float) -> None:
        for leftover in self._path.parent.glob(f"{self._path.name}.*.tmp"):
            try:
                if time.time() - leftover.stat().st_mtime >= older_than_seconds:
                    leftover.unlink()
            except FileNotFoundError:  # another process was faster
                continue

    def _write(self, base: Base | LowRecall, file: BinaryIO) -> None:
        crc = 0

        def write(part: bytes) -> int:
            nonlocal crc
            crc = zlib.crc32(part, crc)
            return file.write(part)

        if isinstance(base, LowRecall):
            write(json.dumps({**self._settings, "refused": asdict(base)}).encode() + b"\n")
        else:
            sizes = {"rows": len(base), "trained": base.trained}
            test = {"effort": base.effort, "recall": base.recall}
            write(json.dumps({**self._settings, **sizes, **test}).encode() + b"\n")
            write(base.rows.tobytes())
            write(base.squared_norms.tobytes())
            faiss.write_index(base.index.engine, faiss.PyCallbackIOWriter(write))
        file.write(crc.to_bytes(CRC_BYTES, "little"))

    def _read(self, connection: apsw.Connection, file: BinaryIO) -> Base | LowRecall | None:
        header = json.loads(file.readline())
        refused = header.pop("refused", None)
        count, trained = header.pop("rows", 0), header.pop("trained", 0)
        effort, recall = header.pop("effort", 1), header.pop("recall", None)
        if header != self._settings:
            return None
        if refused:
            return LowRecall(**refused)
        rows = np.frombuffer(file.read(8 * count), dtype=np.int64)
        norms = np.frombuffer(file.read(8 * count), dtype=np.float64)
        alive = rows_still_there(connection, rows, norms)
        if alive is None:
            logger.warning("%s does not match its chunk file; it will be rebuilt", self._path.name)
            return None
        engine = faiss.read_index(faiss.PyCallbackIOReader(file.read))
        index = KINDS[header["kind"]](engine, self._config)
        base = Base(index, rows, norms, alive, read_state(connection).deletion, trained)
        base.effort, base.recall = effort, recall
        return base


def _stamp(file: BinaryIO) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_mtime_ns, status.st_ino


def _is_whole(file: BinaryIO) -> bool:
    """Return True if the checksum at the end is right; rewind the file."""
    size = file.seek(0, os.SEEK_END) - CRC_BYTES
    file.seek(0)
    crc, left = 0, size
    while left > 0 and (part := file.read(min(left, READ_BYTES))):
        crc = zlib.crc32(part, crc)
        left -= len(part)
    stored = file.read(CRC_BYTES)
    file.seek(0)
    return left == 0 and stored == crc.to_bytes(CRC_BYTES, "little")
