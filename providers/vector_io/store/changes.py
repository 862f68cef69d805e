"""The state of a chunk file, and the deletions since an earlier state.

A row is never changed, and its number is never reused. So a copy catches up by reading the rows
above its last one and the log of deletions, whichever process wrote them.
"""

from __future__ import annotations

from dataclasses import dataclass

import apsw
import numpy as np
from numpy.typing import NDArray

from corral.api.errors import ProviderError


class StaleRead(Exception):
    """A transaction is older than the data in memory and must be restarted.

    The data in memory reflects deletions, and replacing rows, that the transaction does not see.
    The transaction would find neither the old nor the new chunks of a document that was just
    replaced.
    """


@dataclass(frozen=True, slots=True)
class State:
    """The state of the file in a transaction.

    Attributes:
        version: A number that every write raises; -1 before the first state.
        count: Number of chunks.
        last_row: The largest row number that was ever given, 0 for none.
        deletion: The number of the last deletion, 0 for none.
    """

    version: int = -1
    count: int = 0
    last_row: int = 0
    deletion: int = 0


_STATE = """
SELECT (SELECT value FROM state WHERE name = 'version'),
    (SELECT value FROM state WHERE name = 'count'),
    (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'chunks'),
    (SELECT coalesce(max(sequence), 0) FROM deletions)
"""


def read_state(connection: apsw.Connection) -> State:
    """Return the state of the file in a connection's transaction.

    Raises:
        ProviderError: The file is damaged.
    """
    found = connection.execute(_STATE).fetchall()[0]
    if None in found:
        raise ProviderError("The file has no version or count in its state table; it is damaged.")
    return State(*(int(str(value)) for value in found))


def deleted_after(connection: apsw.Connection, deletion: int) -> tuple[int, NDArray[np.int64]]:
    """Return the number of the last deletion, and the rows deleted after an earlier one."""
    query = "SELECT sequence, row FROM deletions WHERE sequence > ? ORDER BY sequence"
    gone = connection.execute(query, (deletion,)).fetchall()
    if not gone:
        return deletion, np.empty(0, dtype=np.int64)
    sequences, rows = np.array(gone, dtype=np.int64).T
    return int(sequences[-1]), rows
