"""A vector DB in another place: copied to another backend, or exported to a file and imported.

`copy.py` copies in the steps of a rebuild, `providers/stack/copy_steps.py`, and `copy_checks.py`
compares the copy with its source.
`snapshots.py` exports what `snapshot_writer.py` writes, and imports what `snapshot_file.py` reads.
"""
