"""The tools that agents call: search, fetch and the others, whatever wire a call comes in by.

`TOOLS` names them all. `server/mcp` and `functions.py` offer them, each in its
own form.
"""
