"""Uses a query option named `marker` on each of its ways, in a copy of the product that has it.

`marker: drop` leaves no hits. A script, because the copy has the product's name; test_house.py
makes the copy and runs it. Prints, as JSON, the number of hits of each way.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from .server.harness import InProcess, Json


def hits(app: InProcess, db: str, **config: str) -> int:
    """Return the number of chunks that the RAG tool finds."""
    body = {"content": "hay", "vector_db_ids": [db], "query_config": config}
    reply: Json = app.ok("POST", "/v1/tool-runtime/rag-tool/query", body)
    return len(reply["metadata"].get("chunks", []))


def main(home: Path) -> None:
    """Register and override the option, and search by each kind of request."""
    with InProcess(home) as app:
        app.register("plain")
        app.register("marked", marker="drop")
        for db in ("plain", "marked"):
            app.insert("hay is in the barn", db=db)
        store = app.ok("POST", "/v1/openai/v1/vector_stores", {"name": "store"})["id"]
        search = f"/v1/openai/v1/vector_stores/{store}/search"
        app.insert("hay is in the barn", db=store)
        found = {
            "registered": hits(app, "marked"),
            "requested": hits(app, "plain", marker="drop"),
            "overridden": hits(app, "marked", marker="none"),
            "by neither": hits(app, "plain"),
            "query": len(app.query("hay", "plain", marker="drop")["chunks"]),
            "store": len(app.ok("POST", search, {"query": "hay"})["data"]),
            "store, requested": len(
                app.ok("POST", search, {"query": "hay", "marker": "drop"})["data"]
            ),
        }
        schema = app.ok("GET", "/openapi.json")["components"]["schemas"]
        result = json.dumps([found, sorted(n for n in schema if "marker" in str(schema[n]))])
    sys.stdout.write(result)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
