"""The tools that agents call, such as search and fetch, independent of the wire.

`TOOLS` lists them. `server/mcp` and `functions.py` serve them in their formats.
"""
