"""The server and the command line: parse, call, serialize; no retrieval logic.

`app.create_app` makes the app and `app.serve` runs it. The command line talks to it over HTTP, or
in process where no address is given.
"""
