"""The RAG tool: documents in, a question in, a context within a token budget out.

`tool.py` is the entry for server, command line and benchmark. A query goes to `search.py`, which
calls `plan.py` and `ranking.py` and returns the selected hits; `context.py` makes a context of
them. docs/architecture.md describes the path of a query.
"""
