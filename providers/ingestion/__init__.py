"""From a file or an address to stored chunks.

`ingest.py` runs all steps for documents: `read/`, `split/`, embedding and the index. `jobs/` runs
them durably; `service.py` is a principal's interface to both.
"""
