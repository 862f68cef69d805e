"""A vector DB in another form: copied to another backend, exported to a file, rebuilt in place.

`copy.py` copies, in the `steps.py` that `rebuild.py` takes too; `checks.py` compares both sides.
`snapshots.py` exports what `snapshot_writer.py` writes, and imports what `snapshot_file.py` reads.
While a vector DB is rebuilt, `rebuild_table.py` remembers and `rebuild_writes.py` loses no write.
"""
