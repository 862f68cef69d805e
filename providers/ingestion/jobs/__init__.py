"""Durable jobs: the queue, and the workers of each process.

`jobs.py` defines a job and its row. `queue.py` and `changes.py` write the table, `reader.py` reads
it, and `runner.py` runs jobs.
"""
