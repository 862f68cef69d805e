"""Ingestion: from a file or a URL to stored chunks.

`ingest.py` runs all steps for a document: `read/`, `split/`, embedding and storing. `jobs/` runs
the same steps durably; `service.py` is a principal's interface to both.
"""
