"""Durable jobs: the queue, and the workers of each process.

`jobs.py` has a job and its row; `queue.py` writes the table, by `changes.py`; `reader.py` reads
it; `runner.py` runs jobs.
"""
