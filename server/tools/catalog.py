"""All tools, and those that a server offers."""

from __future__ import annotations

import difflib
from typing import Any

from corral.api.errors import NotFound
from corral.providers.base.config import ToolSettings
from corral.server.tools import reading, shapes, writing
from corral.server.tools.tool import Tool

TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "search",
        "Search",
        "Search the user's own documents. Returns the documents that fit best, each with the "
        "passage that fits best; read one in full with fetch.",
        shapes.SearchArguments,
        shapes.SearchAnswer,
        reading.search,
    ),
    Tool(
        "fetch",
        "Fetch a document",
        "Return the full text of a document that search found, by its id.",
        shapes.FetchArguments,
        shapes.FetchAnswer,
        reading.fetch,
    ),
    Tool(
        "rag_query",
        "Ask for a context",
        "Return the passages of the user's documents that help to answer a question, as one text "
        "within a token budget. Cite its markers, such as [1]; citations says what each is.",
        shapes.QuestionArguments,
        shapes.QuestionAnswer,
        reading.rag_query,
    ),
    Tool(
        "list_vector_dbs",
        "List vector DBs",
        "List the vector DBs that can be searched. Call it to choose vector_db_ids.",
        shapes.NoArguments,
        shapes.VectorDBSummaries,
        reading.list_vector_dbs,
    ),
    Tool(
        "get_vector_db",
        "Show a vector DB",
        "Return the settings of a vector DB and how much is in it.",
        shapes.NameArguments,
        shapes.VectorDBDetails,
        reading.get_vector_db,
    ),
    Tool(
        "insert",
        "Insert documents",
        "Store texts as documents of a vector DB; a document whose id is known is replaced.",
        writing.InsertArguments,
        writing.InsertAnswer,
        writing.insert,
        writes=True,
    ),
    Tool(
        "delete",
        "Delete a document",
        "Delete a document of a vector DB. This cannot be undone.",
        writing.DeleteArguments,
        writing.DeleteAnswer,
        writing.delete,
        writes=True,
        destroys=True,
    ),
)
"""All tools."""


def offered(settings: ToolSettings) -> list[Tool[Any]]:
    """Return the tools that agents may call: reading tools, and others if enabled."""
    return [tool for tool in TOOLS if settings.writes or not tool.writes]


def find_tool(name: str, settings: ToolSettings) -> Tool[Any]:
    """Return an offered tool.

    Raises:
        NotFound: No tool has this name, or it is disabled.
    """
    tools = {tool.name: tool for tool in offered(settings)}
    if name in tools:
        return tools[name]
    if any(tool.name == name for tool in TOOLS):
        raise NotFound(
            f"The tool {name} is switched off.",
            hint="The operator's setting is server.tools.writes.",
            field="name",
        )
    near = difflib.get_close_matches(name, tools, n=1)
    hint = f"Did you mean {near[0]}? " if near else ""
    raise NotFound(
        f"There is no tool {name[:100]!r}.", hint=f"{hint}Known: {', '.join(tools)}.", field="name"
    )
