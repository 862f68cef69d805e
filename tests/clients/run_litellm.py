"""LiteLLM's side of a test: a registered store, searched by itself and for a completion.

Run with LiteLLM's folder on PYTHONPATH, the address of a Corral server, of a model's server, and
the id of a store. Prints what came back as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import litellm
from litellm.vector_stores.vector_store_registry import (
    LiteLLM_ManagedVectorStore,
    VectorStoreRegistry,
)

KEY = "none"


async def main(corral: str, model: str, store: str) -> dict[str, Any]:
    """Return what LiteLLM got for each of its calls."""
    place = {"custom_llm_provider": "openai", "api_base": corral, "api_key": KEY}
    made = await litellm.vector_stores.acreate(name="by litellm", metadata={"a": "b"}, **place)
    found = await litellm.vector_stores.asearch(vector_store_id=store, query="fox?", **place)
    embedded = await litellm.aembedding(
        model="openai/hashing", input=["fox"], api_base=corral, api_key=KEY
    )
    litellm.vector_store_registry = VectorStoreRegistry(
        [
            LiteLLM_ManagedVectorStore(
                vector_store_id=store,
                custom_llm_provider="openai",
                litellm_params={"api_base": corral, "api_key": KEY},
            )
        ]
    )
    answer = await litellm.acompletion(
        model="openai/fake",
        messages=[{"role": "user", "content": "Where does the fox live?"}],
        tools=[{"type": "file_search", "vector_store_ids": [store]}],
        api_base=model,
        api_key=KEY,
    )
    message = answer.choices[0].message
    return {
        "made": dict(made),
        "found": dict(found),
        "embedding": len(embedded.data[0]["embedding"]),
        "answer": message.content,
        "cited": (message.provider_specific_fields or {}).get("search_results"),
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:])), default=str))  # noqa: T201 - the test reads it
