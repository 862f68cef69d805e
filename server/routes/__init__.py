"""The routes, one module for each part of the wire: parse, call, serialize."""

from corral.server.routes import (
    documents,
    inspect,
    orphans,
    pages,
    tool_runtime,
    vector_dbs,
    vector_io,
)

ROUTERS = (
    documents.router,
    vector_dbs.router,
    vector_dbs.copies,
    orphans.router,
    vector_io.inserts,
    vector_io.router,
    tool_runtime.inserts,
    tool_runtime.router,
    inspect.router,
    pages.router,
)
"""All of them, in the order of the documentation."""
