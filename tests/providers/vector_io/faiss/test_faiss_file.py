"""The file that inline::faiss keeps its index in: loaded, damaged, outdated, and replaced."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from corral.providers.vector_io.store.faiss import records

from .fold import KINDS, no_building, run, vectors


@pytest.mark.parametrize("kind", KINDS)
def test_a_restart_loads_the_index_and_answers_alike(
    folds: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same hits with the same scores, and nothing is built again."""
    fold = folds(kind=kind)
    fold.add(0, 1200)
    fold.add(1200, 40, seed=1)
    fold.delete(100, 50)
    before = fold.answers()
    with no_building(monkeypatch):
        fold.restart()
        fold.searcher.settle()
        assert fold.answers() == before


def test_another_process_loads_what_the_first_has_built(
    folds: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that finds many new chunks takes the index from the file."""
    first = folds()
    second = folds()
    assert second.ask(vectors(1)[0], 5).hits == []
    first.add(0, 1200)
    with no_building(monkeypatch):
        second.ask(vectors(1)[0], 5)
        second.searcher.settle()
        second.rows = first.rows
        assert second.answers() == first.answers()


def damage_nothing(path: Path) -> None:
    """Leave the file as it is."""


def cut(path: Path) -> None:
    """Lose the end of the file."""
    path.write_bytes(path.read_bytes()[:-1000])


def flip(path: Path) -> None:
    """Change one byte in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def garble(path: Path) -> None:
    """Be something else."""
    path.write_bytes(b"this is no index\n" * 100)


def empty(path: Path) -> None:
    """Be empty."""
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, flip, garble, empty])
def test_a_damaged_file_is_built_anew(
    folds: Any, damage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It never reaches FAISS, which would crash; answers are right at once and the file is mended.

    If this fails with a crash of the interpreter: the checksum is not looked at first.
    """
    fold = folds()
    fold.add(0, 1200)
    run(fold.index.close())
    damage(fold.cache)
    with caplog.at_level(logging.WARNING):
        fold.index = fold.open()
    assert "is damaged" in caplog.text
    assert fold.recall() >= 0.95
    fold.searcher.settle()
    caplog.clear()
    fold.restart()
    assert caplog.text == ""
    assert fold.recall() >= 0.95


def test_a_file_without_its_chunk_file_is_not_believed(
    folds: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A chunk file restored from a copy, with other chunks under the same row numbers since.

    If this fails: vectors of chunks that no longer exist decide the ranking.
    """
    fold = folds()
    fold.add(0, 600)
    run(fold.index.close())
    shutil.copy(fold.path, tmp_path / "copy")
    fold.index = fold.open()
    fold.add(600, 1200, seed=1)
    run(fold.index.close())
    shutil.copy(tmp_path / "copy", fold.path)
    for number in range(600, 1800):
        del fold.rows[f"c{number:05}"]
    fold.config = fold.config.model_copy(update={"index": "flat"})
    fold.index = fold.open()
    fold.add(600, 1300, seed=2)
    run(fold.index.close())
    fold.config = fold.config.model_copy(update={"index": "hnsw"})
    with caplog.at_level(logging.WARNING):
        fold.index = fold.open()
    assert "does not match its chunk file" in caplog.text
    assert fold.recall() >= 0.95
    fold.searcher.settle()
    assert fold.recall() >= 0.95


@pytest.mark.parametrize("change", [{"hnsw_m": 8}, {"index": "ivf"}])
def test_other_settings_build_another_index(folds: Any, change: Any) -> None:
    """A file that was built with other settings is not used; settings of queries need no build."""
    fold = folds()
    fold.add(0, 1200)
    before = fold.cache.read_bytes()
    fold.config = fold.config.model_copy(update={"hnsw_ef_search": 64})
    fold.restart()
    fold.searcher.settle()
    assert fold.cache.read_bytes() == before
    fold.config = fold.config.model_copy(update=change)
    fold.restart()
    fold.searcher.settle()
    assert fold.cache.read_bytes() != before
    assert fold.recall() >= 0.95


def test_lists_of_embeddings_are_built_anew_as_codes(folds: Any) -> None:
    """A file of a Corral before codes, whose header does not know them, is not used."""
    fold = folds(kind="ivf")
    fold.add(0, 1200)
    header, rest = fold.cache.read_bytes()[: -records.CRC_BYTES].split(b"\n", 1)
    known = json.loads(header)
    assert known.pop("codes") == "int8"
    old = json.dumps(known).encode() + b"\n" + rest
    fold.cache.write_bytes(old + zlib.crc32(old).to_bytes(records.CRC_BYTES, "little"))
    fold.restart()
    fold.searcher.settle()
    assert b'"codes": "int8"' in fold.cache.read_bytes().split(b"\n", 1)[0]
    assert fold.recall() >= 0.95


def test_the_file_is_replaced_whole_or_not_at_all(
    folds: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk leaves the old file, no leftovers, a line in the log, and an index that works."""
    fold = folds()
    fold.add(0, 600)
    before = fold.cache.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        fold.add(600, 1500, seed=1)
    assert "could not be built or stored: [Errno 28]" in caplog.text
    assert fold.cache.read_bytes() == before
    assert list(fold.path.parent.glob("*.tmp")) == []
    assert fold.recall() >= 0.95
    fold.restart()
    assert fold.recall() >= 0.95


def test_leftovers_of_killed_processes_are_removed(folds: Any) -> None:
    """Old half-written files go with the next build, all of them with the vector DB."""
    fold = folds()
    leftover = fold.cache.with_name(f"{fold.cache.name}.x.tmp")
    stranger = fold.cache.with_name("other.faiss.x.tmp")
    leftover.touch()
    stranger.touch()
    fold.add(0, 600)
    assert leftover.exists()  # it is young: another process may be writing it
    old = time.time() - 2 * records.STALE_SECONDS
    os.utime(leftover, (old, old))
    fold.add(600, 1500, seed=1)
    assert not leftover.exists()
    leftover.touch()
    run(fold.index.delete())
    assert list(fold.path.parent.iterdir()) == [stranger]
