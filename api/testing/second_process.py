"""The second process of tests: opens an index and runs the requested steps.

`processes.SecondProcess` starts it with the file and the name of a suite. Each input line is a JSON
object: a vector DB, its folder, steps. It prints `[result]` for each step as a line of JSON, and
`[]` after it has closed the index.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing.indexes import version_of
from corral.api.testing.suite import Suite
from corral.api.vector_dbs import VectorDB


def say(*results: Any) -> None:
    """Print a line."""
    print(json.dumps(results), flush=True)


async def take(index: EmbeddingIndex, step: str, argument: Any) -> Any:
    """Run one step and return its result as a JSON value.

    Steps: `add` chunks, `delete` ids, `query` (arguments; returns ids), `count`, and `versions`
    (document, first, last, size), which replaces a document again and again and prints the number
    of each version once it is stored.
    """
    if step == "add":
        return await index.add_chunks([Chunk.model_validate(one) for one in argument])
    if step == "delete":
        return await index.delete_chunks(argument)
    if step == "query":
        return [chunk.chunk_id for chunk in (await index.query(**argument)).chunks]
    if step == "count":
        return await index.count()
    if step == "versions":
        document, first, last, size = argument
        for version in range(first, last):
            chunks = version_of(document, version, size, index.vector_db.embedding_dimension)
            await index.add_chunks(chunks, replace_documents={document})
            say(version)
        return None
    raise ValueError(step)


def load(file: str, name: str) -> type[Suite]:
    """Return the test class of a file, which need not be importable by name."""
    spec = importlib.util.spec_from_file_location("conformance_under_test", file)
    if spec is None or spec.loader is None:
        raise ImportError(file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    suite: type[Suite] = getattr(module, name)
    return suite


async def work(suite: Suite, task: dict[str, Any]) -> None:
    """Open the index, run the steps, and close it."""
    vector_db = VectorDB.model_validate(task["vector_db"])
    index = await suite.open_index(vector_db, Path(task["folder"]))
    for step, argument in task["steps"]:
        say(await take(index, step, argument))
    await index.close()
    await suite.close()


if __name__ == "__main__":
    suite = load(*sys.argv[1:])
    for line in sys.stdin:
        asyncio.run(work(suite(), json.loads(line)))
        say()
