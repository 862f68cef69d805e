"""Move a vector DB: copy it to another backend, or export it to a file and import the file.

`copy.py` copies in the same steps as a rebuild (`providers/stack/copy_steps.py`), and
`copy_checks.py` compares the copy with its source. `snapshots.py` exports and imports files;
`snapshot_writer.py` writes them, and `snapshot_file.py` reads them.
"""
