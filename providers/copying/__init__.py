"""A vector DB in another form: copied to another backend, exported to a file, rebuilt in place.

`copy.py` copies, in the `steps.py` that `rebuild.py` takes too; `checks.py` compares both sides.
`snapshots.py` exports what `snapshot_writer.py` writes, and imports what `snapshot_file.py` reads.
While a vector DB is rebuilt, `rebuild_table.py` remembers and `rebuild_writes.py` loses no write.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corral.providers.copying.copy import CopyReport, copy_batch, copy_vector_db, verify_copy

__all__ = ["CopyReport", "copy_batch", "copy_vector_db", "verify_copy"]


def __getattr__(name: str) -> Any:
    """Return a name of `copy.py`, importing it now: it stands on the stack, which rebuilds."""
    if name in __all__:
        return getattr(importlib.import_module(f"{__name__}.copy"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
