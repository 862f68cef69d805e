"""A tool: a name, its arguments, its answer, and its function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends
from pydantic import BaseModel

from corral.api.errors import CorralError, Forbidden
from corral.api.options import checked
from corral.api.principal import Role
from corral.api.spans import span
from corral.api.wire import NullsAreDefaults
from corral.providers.base.config import Limits, ToolSettings
from corral.providers.rag.search import Retrieval
from corral.providers.rag.tool import RagTool
from corral.providers.stack.stack import Stack
from corral.server.access import audit
from corral.server.errors import status_of
from corral.server.routing import BaseUrlOf, RagToolOf, RetrievalOf, StackOf


@dataclass(frozen=True, slots=True)
class ToolServices:
    """The services of a tool, scoped to its caller.

    Attributes:
        stack: The vector DBs.
        retrieval: Searches them.
        rag_tool: Makes contexts.
        base_url: The server's URL, without a trailing slash, for documents without an address.
    """

    stack: Stack
    retrieval: Retrieval
    rag_tool: RagTool
    base_url: str

    @property
    def limits(self) -> Limits:
        """The limits of one call."""
        return self.stack.config.server.limits

    @property
    def settings(self) -> ToolSettings:
        """The operator's settings of the tools."""
        return self.stack.config.server.tools


async def _services(
    stack: StackOf, retrieval: RetrievalOf, rag_tool: RagToolOf, base_url: BaseUrlOf
) -> ToolServices:
    return ToolServices(stack, retrieval, rag_tool, base_url)


ToolServicesOf = Annotated[ToolServices, Depends(_services)]
"""The services of a request's tools, scoped to its caller."""


A = TypeVar("A", bound=NullsAreDefaults)


@dataclass(frozen=True, slots=True)
class Tool(Generic[A]):
    """One tool.

    Attributes:
        name: The name for models.
        title: The name for people.
        description: The tool's effect and use, for models.
        arguments: Model of the arguments.
        answer: Model of the result.
        work: The implementing function.
        writes: True if it changes stored data.
        destroys: True if it deletes stored data.
    """

    name: str
    title: str
    description: str
    arguments: type[A]
    answer: type[BaseModel]
    work: Callable[[ToolServices, A], Awaitable[BaseModel]]
    writes: bool = False
    destroys: bool = False

    async def call(self, services: ToolServices, arguments: Mapping[str, Any]) -> BaseModel:
        """Check the caller and the arguments, do the work and return the answer.

        Raises:
            Forbidden: The tool writes and its caller may not.
            CorralError: An argument is malformed, or the work fails.
        """
        audit.current().calls(self.name)
        with counted():
            if self.writes and not services.stack.principal.may(Role.WRITER):
                raise Forbidden(f"{self.name} needs the role writer.", hint="Use another API key.")
            return await self.work(services, checked(self.arguments, arguments))


@contextmanager
def counted() -> Iterator[None]:
    """Audit and count a refusal, although its reply is a 200."""
    try:
        yield
    except CorralError as error:
        status, code = status_of(error)
        audit.current().refused = status < 500
        with span("refusal", code=code):
            raise
