"""A vector DB in another place: copied to another backend, or exported to a file and imported.

`copy.py` copies by the steps of `providers/base/copy_steps.py`, which a rebuild takes too.
`snapshots.py` exports what `snapshot_writer.py` writes, and imports what `snapshot_file.py` reads.
"""
