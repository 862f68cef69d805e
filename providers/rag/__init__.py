"""The RAG tool: documents in, a question in, a context within a token budget out.

`tool.py` is the entry for server, command line and benchmark. It stands on `parsing.py` and
`fetching.py` (document to text), `splitting.py` (text to chunks), `retrieval.py` (embed, store,
search, merge), `context.py` with `frame.py` (hits to context) and `tokens.py` (counting).
"""
