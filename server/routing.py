"""Shared by all routes: parsing a body into a model, ids in paths, dependencies.

FastAPI would parse JSON with the standard library, then validate the result; for 1,000 chunks
with embeddings that takes three times as long as letting pydantic read the bytes. A route of this
class does the latter and hands FastAPI the finished model, so that signatures and the OpenAPI
document stay FastAPI's own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.datastructures import Default
from fastapi.params import Depends as Dependency
from fastapi.params import Form
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import AliasChoices, BaseModel, Field, ValidationError
from starlette.convertors import Convertor, register_url_convertor
from starlette.routing import compile_path
from starlette.types import Scope

from corral.api.errors import Forbidden, NotFound
from corral.api.principal import Principal
from corral.api.provider import Api
from corral.api.spans import span
from corral.providers.base.config import Limits
from corral.providers.rag.answer import Answerer
from corral.providers.rag.search import Retrieval
from corral.providers.rag.tool import RagTool
from corral.providers.stack.stack import Stack
from corral.server.access import audit
from corral.server.access.roles import principal_of, with_needs
from corral.server.bodies import check_content_type, cut_once, is_large, read_body

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

_JSON = Default(JSONResponse)
_READING = threading.RLock()


class _IdConvertor(Convertor[str]):
    """Everything up to the end of the path, line breaks included: an id may hold any of it."""

    regex = "(?s:.+)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("id", _IdConvertor())


class ContractRoute(APIRoute):
    """A route whose body is read by pydantic, and which answers 400 if something is not found.

    Llama Stack's clients expect BadRequest for an unknown vector DB; of other wires, see
    `NotFoundRoute`. A form is read by the framework, large files on the disk.

    Who may use it is declared with `access.roles` and checked before the body is read.

    FastAPI reads the endpoint's signature when the route is first used: 1 to 2 ms a route, which
    for all is a sixth of the start-up of a server, and of a command, which uses one or two of them.
    """

    not_found_status = 400

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        dependencies: Sequence[Dependency] | None = None,
        methods: set[str] | list[str] | None = None,
        response_class: Any = _JSON,
        **settings: Any,
    ) -> None:
        self.path, self.endpoint = path, endpoint
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self.methods = {method.upper() for method in methods or ("GET",)}
        self.needs, self.dependencies = with_needs(dependencies or (), methods)
        self.response_class = response_class
        read = {"dependencies": self.dependencies, "response_class": response_class}
        self._unread: dict[str, Any] | None = {"methods": methods, **read, **settings}

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that FastAPI derives from the endpoint, and derive them all now."""
        with _READING:  # an app in another thread has the same routes
            unread = self.__dict__.get("_unread")
            if unread is not None:
                self._unread = None
                super().__init__(self.path, self.endpoint, **unread)
        return object.__getattribute__(self, name)

    def check_access(self, request: Request) -> None:
        """Refuse a request whose principal may not use this route.

        Raises:
            Unauthenticated, Forbidden: See `Needs`.
        """
        self.needs.check(request.scope)

    def get_route_handler(self) -> Handler:
        """Return the handler of this route."""
        handler = super().get_route_handler()
        field = self.body_field
        if field is None:
            return handler
        if isinstance(field.field_info, Form):
            return self._form_handler(handler)
        model = cast(type[BaseModel], field.field_info.annotation)

        async def handle(request: Request) -> Response:
            self.check_access(request)
            raw = await request.body()
            check_content_type(request)
            pieces = await cut_once(request, raw)
            parsed = await read_body(raw, model, pieces)
            audit.current().names(*_named(parsed))
            return await handler(_ParsedRequest(request, parsed))

        return handle

    def _form_handler(self, handler: Handler) -> Handler:
        """Return the handler of a form, which a web page can make a browser send to any address."""

        async def handle(request: Request) -> Response:
            self.check_access(request)
            if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
                raise Forbidden("Uploads from pages of other sites are refused.")
            return await handler(request)

        return handle


class NotFoundRoute(ContractRoute):
    """A route whose clients expect 404 if something is not found."""

    not_found_status = 404


class InsertRoute(ContractRoute):
    """A route that stores data; few run at once, and the others wait for a slot.

    Each vector DB provider has `server.limits.max_concurrent_inserts` slots of its own, so that a
    backend that hangs does not block writes to the others. So many bodies for each provider are
    in memory parsed; those that wait are bytes. (A copy that reads from another provider takes a
    slot of that pair, which has as many: it waits for both.)

    The slot is taken when the body has arrived, so that a slow sender does not hold one, and before
    it is parsed, which multiplies its size.
    """

    def get_route_handler(self) -> Handler:
        """Return the handler of this route."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            self.check_access(request)
            raw = await request.body()
            slots = request.app.state.insert_slots[await _providers(request, raw)]
            with span("queue"):
                await slots.acquire()
            try:
                return await handler(request)
            finally:
                slots.release()

        return handle


class _ParsedRequest(Request):
    """A request whose body is a model already."""

    def __init__(self, request: Request, model: BaseModel) -> None:
        super().__init__(request.scope, request.receive)
        self._model = model

    async def body(self) -> bytes:
        return b"{}"  # not empty is all that FastAPI wants to know

    async def json(self) -> BaseModel:
        return self._model


class _Names(BaseModel):
    """The ids in the body of an insert or a copy; other fields are ignored."""

    vector_db_id: str = Field(
        default="", validation_alias=AliasChoices("vector_db_id", "vector_store_id")
    )
    target_id: str = ""
    provider_id: str | None = None


async def _providers(request: Request, raw: bytes) -> frozenset[str]:
    """Return the providers that an insert waits for; none if it will be refused."""
    stack = stack_of(request.scope)
    pieces = await cut_once(request, raw)
    head = pieces.rest if pieces else raw
    names = await asyncio.to_thread(_names, head) if is_large(head) else _names(head)
    provider_ids = {names.provider_id}
    in_path = request.path_params.get("vector_db_id", "")
    for vector_db_id in filter(None, (in_path, names.vector_db_id, names.target_id)):
        with suppress(NotFound):
            provider_ids.add((await stack.vector_db(vector_db_id)).provider_id)
    return frozenset(e.provider_id for e in stack.config.providers.of(Api.VECTOR_IO)) & provider_ids


def _named(parsed: BaseModel) -> list[str]:
    """Return the vector DBs that a body names."""
    one = [getattr(parsed, field, None) for field in ("vector_db_id", "target_id")]
    many = getattr(parsed, "vector_db_ids", None) or []
    return [name for name in [*one, *many] if isinstance(name, str)]


def _names(raw: bytes) -> _Names:
    """Read the names alone: a sixth of the time of parsing all, and nothing of it stays."""
    with suppress(ValidationError):  # which is told when all is parsed
        return _Names.model_validate_json(raw)
    return _Names()


PathId = Annotated[
    str, Path(description="Percent-encoded; can contain any character, including slashes and dots.")
]
"""The id at the end of a path."""


def stack_of(scope: Scope) -> Stack:
    """Return the stack as the caller of a request may see it; routes have no other access to it.

    Raises:
        Unauthenticated: The request has no principal.
    """
    principal = principal_of(scope)
    return cast(Stack, scope["app"].state.stack).for_principal(principal)


def routes_of(router: APIRouter) -> list[APIRoute]:
    """Return the routes of a router, without what is mounted there."""
    return [route for route in router.routes if isinstance(route, APIRoute)]


async def _principal(request: Request) -> Principal:
    return principal_of(request.scope)


async def _stack(request: Request) -> Stack:
    return stack_of(request.scope)


async def _rag_tool(request: Request) -> RagTool:
    return cast(RagTool, request.app.state.rag_tool).on(stack_of(request.scope))


async def _retrieval(request: Request) -> Retrieval:
    return (await _rag_tool(request)).retrieval


async def _answerer(request: Request) -> Answerer:
    return Answerer(await _rag_tool(request), stack_of(request.scope))


async def _limits(request: Request) -> Limits:
    return cast(Limits, request.app.state.limits)


async def _base_url(request: Request) -> str:
    """Return the URL at which users reach this server, without a slash at the end."""
    given = cast(Stack, request.app.state.stack).config.server.tools.public_url
    return (given or str(request.base_url)).rstrip("/")


PrincipalOf = Annotated[Principal, Depends(_principal)]

# Coroutines, since FastAPI sends plain functions to a thread, which takes longer than they do.
StackOf = Annotated[Stack, Depends(_stack)]
RetrievalOf = Annotated[Retrieval, Depends(_retrieval)]
RagToolOf = Annotated[RagTool, Depends(_rag_tool)]
AnswererOf = Annotated[Answerer, Depends(_answerer)]
LimitsOf = Annotated[Limits, Depends(_limits)]
BaseUrlOf = Annotated[str, Depends(_base_url)]
