"""The memory copy of a chunk file: what it holds, and that it is never newer than a transaction."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

import apsw
import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from corral.api.scoring import Metric
from corral.providers.vector_io.kit.codes import coded
from corral.providers.vector_io.store.changes import StaleRead, read_state
from corral.providers.vector_io.store.connections import connect, transaction
from corral.providers.vector_io.store.matrix import (
    BATCH_ROWS,
    MemoryCopy,
    mark_deleted,
    read_embeddings,
    read_rows,
    unit_rows,
)
from corral.providers.vector_io.store.postings import KeywordIndex
from corral.providers.vector_io.store.rows import chunk_ids_of, count_up
from corral.providers.vector_io.store.schema import prepare


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of an empty chunk file."""
    file = tmp_path / "x.db"
    file.touch()
    connection = connect(file, 1)
    prepare(connection, KeywordIndex({"content": 1.0}, "simple"))
    connection.close()
    return file


@pytest.fixture
def connection(path: Path) -> Iterator[apsw.Connection]:
    """Open the chunk file."""
    opened = connect(path, 1)
    yield opened
    opened.close()


def write(connection: apsw.Connection, *vectors: ArrayLike) -> None:
    """Store embeddings."""
    with transaction(connection):
        for vector in np.array(vectors, dtype=np.float32):
            connection.execute(
                "INSERT INTO chunks(chunk_id, content, metadata)"
                " VALUES (hex(randomblob(8)), '', '')"
            )
            row = connection.last_insert_rowid()
            norm = float((vector.astype(np.float64) ** 2).sum())
            connection.execute(
                "INSERT INTO embeddings VALUES (?, ?, ?)", (row, vector.tobytes(), norm)
            )
        count_up(connection, len(vectors))


def delete(connection: apsw.Connection, *rows: int) -> None:
    """Delete rows."""
    with transaction(connection):
        for row in rows:
            connection.execute("DELETE FROM chunks WHERE row = ?", (row,))
            connection.execute("DELETE FROM embeddings WHERE row = ?", (row,))
            connection.execute("INSERT INTO deletions(row) VALUES (?)", (row,))
        count_up(connection, -len(rows))


def living(copy: MemoryCopy, connection: apsw.Connection) -> dict[int, list[float]]:
    """Return the rows of the copy that are alive, with their embeddings, whose codes it holds."""
    view = copy.view(connection)
    assert view.all_alive is bool(view.alive.all())
    rows, codes = view.rows[view.alive], view.codes[np.flatnonzero(view.alive)]
    matrix = read_rows(connection, rows, 2)
    expected = coded(matrix)
    assert codes.codes.tolist() == expected.codes.tolist()
    assert codes.scales.tolist() == expected.scales.tolist()
    assert codes.residuals.tolist() == expected.residuals.tolist()
    return dict(zip(rows.tolist(), matrix.tolist(), strict=True))


def test_the_copy_follows_writes_and_deletions(connection: apsw.Connection) -> None:
    """Each view is the file as it is: rows appended, rows gone, compacted after many deletions."""
    copy = MemoryCopy(2, Metric.DOT)
    assert living(copy, connection) == {}
    write(connection, [3, 4], [0, 2], [1, 0], [5, 5])
    assert living(copy, connection) == {1: [3, 4], 2: [0, 2], 3: [1, 0], 4: [5, 5]}
    delete(connection, 2)
    assert living(copy, connection) == {1: [3, 4], 3: [1, 0], 4: [5, 5]}
    delete(connection, 1, 4)
    write(connection, [7, 7])
    assert living(copy, connection) == {3: [1, 0], 5: [7, 7]}
    delete(connection, 3, 5)
    assert living(copy, connection) == {}
    write(connection, [8, 8])
    assert living(copy, connection) == {6: [8, 8]}


def test_a_copy_may_begin_above_a_row(connection: apsw.Connection) -> None:
    """Rows up to `after_row` are somebody else's, also when all others are gone."""
    write(connection, [3, 4], [0, 2], [1, 0])
    copy = MemoryCopy(2, Metric.DOT, after_row=2)
    assert living(copy, connection) == {3: [1, 0]}
    delete(connection, 3, 1)
    assert living(copy, connection) == {}
    write(connection, [9, 9])
    assert living(copy, connection) == {4: [9, 9]}


def test_unit_rows_have_length_one_however_they_are_read(connection: apsw.Connection) -> None:
    """Under cosine codes stand for rows of length 1; stored embeddings are read as they are."""
    write(connection, [3, 4], [0, 2], [1e-3, 7])
    view = MemoryCopy(2, Metric.COSINE).view(connection)
    decoded = view.codes.codes * view.codes.scales[:, None]
    lengths = np.linalg.norm(decoded, axis=1)
    assert (np.abs(lengths - 1) <= view.codes.residuals + 1e-6).all()
    assert view.codes.residuals.max() < 0.01
    [batch] = read_embeddings(connection, 0)
    unit = unit_rows(batch.matrix, batch.squared_norms)
    assert np.linalg.norm(unit, axis=1) == pytest.approx([1, 1, 1], abs=1e-6)
    some = read_rows(connection, np.array([1, 3]), 2)
    assert some.tolist() == batch.matrix[[0, 2]].tolist()
    assert view.squared_norms.tolist()[:2] == [25.0, 4.0]


def test_embeddings_are_read_in_the_order_asked_for(connection: apsw.Connection) -> None:
    """Many rows come in their order, byte for byte; what is gone is left out.

    If this fails: SQLite changes bytes that are no text, and exact scores are those of other
    numbers, or of other rows.
    """
    bits = np.random.default_rng(3).integers(0, 2**32, (BATCH_ROWS + 9, 2), dtype=np.uint32)
    bits[:4] = [[0, 0], [0x00FF00FF, 0xFFFE0000], [0x27272722, 0xC0800080], [1, 0x80000000]]
    bits &= 0xFF7FFFFF  # finite
    write(connection, *bits.view(np.float32))
    order = np.random.default_rng(4).permutation(len(bits))
    assert read_rows(connection, order + 1, 2).tobytes() == bits[order].tobytes()
    delete(connection, 1, 3)
    assert read_rows(connection, np.array([3, 2, 1]), 2).tobytes() == bits[1].tobytes()
    for none in ([], [1]):
        assert read_rows(connection, np.array(none, np.int64), 2).shape == (0, 2)


def test_chunk_ids_are_read_whatever_they_are(connection: apsw.Connection) -> None:
    """Ids that look like syntax belong to their rows; a row that is gone has none."""
    named = ['","', "\x01\t\n\\", "[]", "\N{PILE OF POO}\u2028", "a, b", "null", "\uffff'"]
    write(connection, *[[1, 2]] * len(named))
    for row, name in enumerate(named, 1):
        connection.execute("UPDATE chunks SET chunk_id = ? WHERE row = ?", (name, row))
    delete(connection, 5)
    expected = {row: name for row, name in enumerate(named, 1) if row != 5}
    found = chunk_ids_of(connection, [7, 6, 5, 4, 3, 2, 1])
    assert list(found) == [7, 6, 4, 3, 2, 1]
    assert found == expected
    assert chunk_ids_of(connection, [5]) == chunk_ids_of(connection, []) == {}


@pytest.mark.parametrize("metric", list(Metric))
def test_codes_that_do_not_fit_are_in_a_file(
    tmp_path: Path, connection: apsw.Connection, metric: Metric
) -> None:
    """A copy in a temporary file, which has gone with it, holds what one in memory holds."""
    write(connection, *np.random.default_rng(1).standard_normal((30, 2)).tolist())
    folder = tmp_path / "codes"
    folder.mkdir()
    plain = MemoryCopy(2, metric)
    mapped = MemoryCopy(2, metric, most_bytes=100, beside=folder / "x.db")
    for _ in range(2):
        one, other = plain.view(connection), mapped.view(connection)
        assert isinstance(other.codes.codes.base, np.memmap | mmap.mmap)
        assert one.rows.tolist() == other.rows.tolist()
        assert one.codes.codes.tolist() == other.codes.codes.tolist()
        query = np.array([0.5, -1], dtype=np.float32)
        found = [view.begin(connection, query, 3, None)() for view in (one, other)]
        assert found[0][0].tolist() == found[1][0].tolist()
        delete(connection, *range(1, 12))  # compacts both
        write(connection, [6, 6])
    del mapped, other, found
    assert list(folder.iterdir()) == []


def test_later_states_leave_a_view_alone(connection: apsw.Connection) -> None:
    """What a search is reading does not change under it."""
    copy = MemoryCopy(2, Metric.DOT)
    write(connection, [3, 4], [0, 2], [1, 0], [2, 2], [4, 4])
    view = copy.view(connection)
    delete(connection, 1)
    write(connection, [6, 6])
    copy.view(connection)
    assert view.alive.tolist() == [True] * 5
    assert view.rows.tolist() == [1, 2, 3, 4, 5]


def test_a_transaction_that_was_overtaken_is_refused(
    path: Path, connection: apsw.Connection
) -> None:
    """A view for a transaction that is older than the copy is refused, not given from the future.

    If this fails: a query misses a document that was replaced while it ran, in both versions.
    """
    write(connection, [3, 4])
    copy, other = MemoryCopy(2, Metric.DOT), connect(path, 1)
    with transaction(connection, "DEFERRED"):
        assert living(copy, connection) == {1: [3, 4]}
        write(other, [1, 1])
        assert set(living(copy, other)) == {1, 2}
        with pytest.raises(StaleRead):
            copy.view(connection)
    assert set(living(copy, connection)) == {1, 2}
    other.close()


def test_the_last_row_ever_outlives_its_deletion(connection: apsw.Connection) -> None:
    """Row numbers are never used again, and the largest one is known when it is gone."""
    assert read_state(connection).last_row == 0
    write(connection, [3, 4], [0, 2])
    delete(connection, 2)
    assert read_state(connection).last_row == 2


@pytest.mark.parametrize(
    ("gone", "newly", "left"),
    [([], 0, [2, 5, 9]), ([5, 5], 1, [2, 9]), ([1, 3, 10], 0, [2, 5, 9]), ([9, 2], 2, [5])],
)
def test_burying(gone: list[int], newly: int, left: list[int]) -> None:
    """Rows that are gone are marked once; rows that are not there are ignored."""
    rows: NDArray[np.int64] = np.array([2, 5, 9])
    alive = np.ones(3, dtype=np.bool_)
    assert mark_deleted(rows, alive, np.array(gone, dtype=np.int64)) == newly
    assert rows[alive].tolist() == left
    assert mark_deleted(rows, alive, np.array(gone, dtype=np.int64)) == 0
