"""A vector DB in another form: copied to another backend, exported to a file, rebuilt in place.

`copy.py` copies, in the `steps.py` that `rebuild.py` takes too; `checks.py` compares both sides.
`snapshots.py` exports and imports what `snapshot_file.py` writes and reads. While a vector DB is
rebuilt, `rebuild_table.py` remembers and `rebuild_writes.py` loses no write.
"""

from corral.providers.copying.copy import CopyReport, copy_batch, copy_vector_db, verify_copy

__all__ = ["CopyReport", "copy_batch", "copy_vector_db", "verify_copy"]
