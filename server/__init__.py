"""The server and the command line: parse, call, serialize; no retrieval logic.

`app.create_app` returns the app and `serving.serve` runs it. Folders: one for each wire
(`llama_stack`, `openai`, `mcp`, `native`, and `applications` for chat UIs, found by entry point),
`tools` for agents, `page` for people, `access`, `telemetry`, and `cli`, the command line, which
calls the app over HTTP or in process.
"""

DISTRIBUTION = "corral-rag"
"""The installed package, whose version is the server's."""
