"""The server and the command line: parse, call, serialize; no retrieval logic.

`app.create_app` returns the app and `app.serve` runs it. A room for each wire (`llama_stack`,
`openai`, `mcp`, `corral`, and `applications` for those of chat UIs), one for the tools that agents
call, one for the pages, and the command line, which calls the app over HTTP or in process.
"""

DISTRIBUTION = "corral-rag"
"""The installed package, whose version is the server's."""
