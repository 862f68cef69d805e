"""The RAG tool: documents in, a question in, a context within a token budget out.

`tool.py` is the entry for server, command line and benchmark. A query goes through `plan.py` (what
wins, decided once), `retrieval.py` and `searching.py`, and comes back through `selection.py` and
`context.py`. docs/architecture.md draws the whole road.
"""
