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
from corral.api.wire import Identifier
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
    """Matches everything up to the end of the path, including line breaks in ids."""

    regex = "(?s:.+)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("id", _IdConvertor())


class ContractRoute(APIRoute):
    """A route with a body parsed by pydantic, and status 400 for missing objects.

    Llama Stack's clients expect BadRequest for an unknown vector DB; see `NotFoundRoute` for other
    wires. FastAPI parses forms, with large files on disk. The required role is declared with
    `access.roles` and checked before the body is read. The endpoint's signature is analyzed at the
    first use of the route. It takes 1 to 2 ms per route, a sixth of the start-up time for all, and
    a command uses only one or two.
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
        """Return an attribute that FastAPI derives from the endpoint, deriving all of them."""
        with _READING:  # an app in another thread shares the routes
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
        """Return the handler of a form, which web pages can make browsers send to any address."""

        async def handle(request: Request) -> Response:
            self.check_access(request)
            if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
                raise Forbidden("Uploads from pages of other sites are refused.")
            return await handler(request)

        return handle


class NotFoundRoute(ContractRoute):
    """A route with status 404 for missing objects."""

    not_found_status = 404


class InsertRoute(ContractRoute):
    """A route that stores data; requests beyond a limit wait for a slot.

    Each vector DB provider has `server.limits.max_concurrent_inserts` slots, so a hung backend does
    not block writes to others. At most this many bodies per provider are parsed in memory; waiting
    requests have only their bytes. (A copy from another provider takes a slot of the pair of
    providers, which has as many.) The slot is taken after the body has arrived, so that a slow
    sender does not hold one, and before parsing, which multiplies the size.
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
    """A request with an already parsed body."""

    def __init__(self, request: Request, model: BaseModel) -> None:
        super().__init__(request.scope, request.receive)
        self._model = model

    async def body(self) -> bytes:
        return b"{}"  # FastAPI only checks that it is not empty

    async def json(self) -> BaseModel:
        return self._model


class _Names(BaseModel):
    """The ids in the body of an insert or a copy; other fields are ignored."""

    vector_db_id: Identifier = Field(
        default="", validation_alias=AliasChoices("vector_db_id", "vector_store_id")
    )
    target_id: Identifier = ""
    provider_id: str | None = None


async def _providers(request: Request, raw: bytes) -> frozenset[str]:
    """Return the providers that an insert must wait for; none if it will be refused."""
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
    """Parse only the names, in a sixth of the time of parsing everything."""
    with suppress(ValidationError):  # the error is reported when the whole body is parsed
        return _Names.model_validate_json(raw)
    return _Names()


PathId = Annotated[
    str, Path(description="Percent-encoded; can contain any character, including slashes and dots.")
]
"""The id at the end of a path."""


def stack_of(scope: Scope) -> Stack:
    """Return the caller's view of the stack; routes access it only in this way.

    Raises:
        Unauthenticated: The request has no principal.
    """
    principal = principal_of(scope)
    return cast(Stack, scope["app"].state.stack).for_principal(principal)


def routes_of(router: APIRouter) -> list[APIRoute]:
    """Return the routes of a router, without mounted applications."""
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
    """Return the URL at which users reach this server, without a trailing slash."""
    given = cast(Stack, request.app.state.stack).config.server.tools.public_url
    return (given or str(request.base_url)).rstrip("/")


PrincipalOf = Annotated[Principal, Depends(_principal)]

# Coroutines, because FastAPI runs plain functions in a thread, which takes longer.
StackOf = Annotated[Stack, Depends(_stack)]
RetrievalOf = Annotated[Retrieval, Depends(_retrieval)]
RagToolOf = Annotated[RagTool, Depends(_rag_tool)]
AnswererOf = Annotated[Answerer, Depends(_answerer)]
LimitsOf = Annotated[Limits, Depends(_limits)]
BaseUrlOf = Annotated[str, Depends(_base_url)]
