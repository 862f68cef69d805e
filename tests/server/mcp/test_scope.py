"""What a call searches that names no vector DB: `server.tools.vector_db_ids`, tenant by tenant."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from corral.api.errors import NotFound
from corral.api.principal import Principal, Role
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.stack.stack import Stack
from corral.server.mcp.stdio import services_of
from corral.server.tools.reading import rag_query, search
from corral.server.tools.shapes import QuestionArguments, SearchArguments
from corral.server.tools.tool import ToolServices

from ..harness import run_config

LISTED = ["handbook", "secret-plans"]
OWNED = {"acme": ["handbook", "drafts"], "spy": ["secret-plans"], "globex": ["notes"], "new": []}
"""Vector DBs by tenant; `LISTED` names some of two of them."""


def services(stack: Stack, tenant: str) -> ToolServices:
    """Return what the tools of a tenant's reader work with."""
    return services_of(stack.for_principal(Principal(tenant=tenant, role=Role.READER)))


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    """Four tenants, with a document in each of their vector DBs."""
    opened = Stack(run_config(server={"tools": {"vector_db_ids": LISTED}}), tmp_path)
    for tenant, names in OWNED.items():
        view = opened.for_principal(Principal(tenant=tenant, role=Role.ADMIN))
        for name in names:
            await view.register(VectorDBRegistration(vector_db_id=name, embedding_model="hashing"))
            document = RAGDocument(document_id="fence", content="A fence keeps the cattle in.")
            await services_of(view).stack.ingestion.insert([document], name)
    yield opened
    await opened.close()


async def searched(given: ToolServices, **arguments: Any) -> list[str]:
    """Return the vector DBs that a search found something in."""
    found = await search(given, SearchArguments(query="cattle", **arguments))
    return sorted(each.vector_db_id for each in found.results)


async def test_a_tenant_searches_those_of_the_list_that_it_has(stack: Stack) -> None:
    """Others' ids in the list are passed over, and what is not in the list is not searched.

    If this fails: a search fails for one tenant because the list names another's vector DB.
    """
    assert await searched(services(stack, "acme")) == ["handbook"]
    assert await searched(services(stack, "spy")) == ["secret-plans"]
    assert await searched(services(stack, "acme"), vector_db_ids=["drafts"]) == ["drafts"]
    asked = QuestionArguments.model_validate({"question": "what keeps cattle in?"})
    answer = await rag_query(services(stack, "acme"), asked)
    assert [each.vector_db_id for each in answer.citations] == ["handbook"]


async def test_a_tenant_with_none_of_the_list_hears_of_its_own(stack: Stack) -> None:
    """The refusal names the caller's vector DBs and none of the list; nothing to name is no error.

    If this fails: a tenant learns what another's vector DBs are called.
    """
    with pytest.raises(NotFound) as raised:
        await searched(services(stack, "globex"))
    told = str(raised.value)
    assert "Pass some of: notes." in told
    assert not any(name in told for name in LISTED)
    assert await searched(services(stack, "globex"), vector_db_ids=["notes"]) == ["notes"]
    assert await searched(services(stack, "new")) == []
