"""From a file or an address to stored chunks.

`ingest.py` takes documents through all steps: `read/`, `split/`, embedding and the index. `jobs/`
does so durably; `service.py` is what a principal sees of both.
"""
