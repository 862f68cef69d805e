"""The RAG tool: turns a question into a context within a token budget.

Server, command line and benchmark use `tool.py`. It passes a query to `search.py`, which calls
`plan.py` and `ranking.py` and returns the selected hits; `context.py` assembles them into a
context. docs/architecture.md describes the path of a query.
"""
