"""Information about the server: health, version, caller, providers, limits."""

from __future__ import annotations

from dataclasses import asdict
from importlib import metadata
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from corral.api.errors import CorralError, UnknownProvider
from corral.api.principal import Principal, Role
from corral.api.provider import Api, ProviderSpec
from corral.providers.base.config import Limits
from corral.providers.base.document_limits import DocumentLimits
from corral.providers.stack.configured import ProviderStatus
from corral.providers.stack.effective import effective_config
from corral.providers.stack.registry import broken_plugins, provider_specs
from corral.providers.stack.stack import Stack
from corral.server import DISTRIBUTION
from corral.server.access.roles import OPERATOR, PUBLIC
from corral.server.errors import ERRORS
from corral.server.routing import ContractRoute, PathId, PrincipalOf, StackOf

router = APIRouter(prefix="/v1", tags=["Inspect"], route_class=ContractRoute, responses=ERRORS)


class HealthReply(BaseModel):
    """The server is running."""

    status: Literal["OK"] = "OK"


class VersionReply(BaseModel):
    """The version of the server, and the id of its installation."""

    version: str
    installation: str = Field(
        description="Id of the data folder, 32 hex digits; the data that it makes in shared engines"
        " has it."
    )


class CallerReply(BaseModel):
    """Who sends a request, as its key or token says; on a server without keys, the operator."""

    role: Role
    tenant: str = Field(description="Empty: the default tenant.")
    user: str
    groups: list[str]
    key_id: str = Field(description="Public part of the API key; empty: there is none.")


class ProviderHealth(BaseModel):
    """Health of a provider, with the cause of an error."""

    status: Literal["OK", "Error"]
    message: str = ""
    version: str = Field(
        default="", description="Version of the engine's server; empty if none is known."
    )


class ProviderInfo(BaseModel):
    """A configured provider, or the server's own one for files or tools."""

    api: str = Field(
        description="Llama Stack's name for its kind: embedding models are `inference`."
    )
    kind: str = Field(description="Its section in run.yaml.")
    provider_id: str
    provider_type: str
    config: dict[str, Any] = Field(
        description="Its settings, secrets masked; for the operator only, else empty."
    )
    health: ProviderHealth
    capabilities: dict[str, Any] | None = Field(
        default=None, description="What a vector_io provider can do."
    )


class ProviderType(BaseModel):
    """A provider type that is installed, configured or not."""

    api: str = Field(description="As in the list of configured providers.")
    kind: str = Field(description="Its section in run.yaml.")
    provider_type: str
    description: str
    capabilities: dict[str, Any] | None = Field(
        default=None, description="What a vector_io provider can do."
    )


class BrokenProvider(BaseModel):
    """An installed provider that cannot be loaded."""

    name: str = Field(description="Its entry point.")
    reason: str


class ProviderList(BaseModel):
    """The configured providers and the installed types."""

    data: list[ProviderInfo]
    types: list[ProviderType]
    broken: list[BrokenProvider] = Field(description="Installed types that fail to import.")


class LimitsReply(BaseModel):
    """The limits that run.yaml sets."""

    server: Limits = Field(description="Limits of one request: `server.limits`.")
    document: DocumentLimits = Field(description="Limits of one document: `rag.document_limits`.")
    reader_types: list[str] = Field(
        description="MIME types that the configured readers take, such as `image/*`, beside those "
        "that Corral reads."
    )


@router.get("/health", summary="Is the server up?", dependencies=[PUBLIC])
async def health() -> HealthReply:
    """Return OK. See `/v1/providers` for the health of the providers."""
    return HealthReply()


@router.get("/version", summary="The server's version")
async def version(stack: StackOf) -> VersionReply:
    """Return the version of the installed package, and the id of the installation."""
    return VersionReply(
        version=metadata.version(DISTRIBUTION), installation=await stack.installation()
    )


@router.get("/whoami", summary="Who am I?")
async def whoami(principal: PrincipalOf) -> CallerReply:
    """Return the caller's role, tenant, user and groups."""
    return CallerReply(
        role=principal.role,
        tenant=principal.tenant,
        user=principal.user,
        groups=sorted(principal.groups),
        key_id=principal.key_id,
    )


@router.get("/providers", summary="List the providers")
async def list_providers(stack: StackOf, principal: PrincipalOf) -> ProviderList:
    """Return every provider with its current health, and every installed type.

    The last two, `files` and `rag-runtime`, are the server's own: Llama Stack's clients look for
    the apis `files` and `tool_runtime` in this list.
    """
    return ProviderList(
        data=await _providers(stack, principal),
        types=[_type(spec) for spec in provider_specs().values()],
        broken=[BrokenProvider(**asdict(plugin)) for plugin in broken_plugins()],
    )


@router.get("/providers/{provider_id:id}", summary="Show a provider")
async def retrieve_provider(
    provider_id: PathId, stack: StackOf, principal: PrincipalOf
) -> ProviderInfo:
    """Return a provider; if several kinds share an id, the vector_io one."""
    providers = await _providers(stack, principal)
    for provider in providers:
        if provider.provider_id == provider_id:
            return provider
    raise UnknownProvider(provider_id, {p.provider_id for p in providers}, field="provider_id")


@router.get("/config", summary="Show the configuration", dependencies=[OPERATOR])
async def config(stack: StackOf) -> dict[str, Any]:
    """Return all settings in force, with secrets masked, like `corral config show`."""
    return effective_config(stack)


@router.get("/limits", summary="Show the limits")
async def limits(stack: StackOf) -> LimitsReply:
    """Return the limits of a request and of a document, and the types of the readers."""
    config = stack.config
    types = [each for reader in stack.readers() for each in reader.config.mime_types]
    return LimitsReply(
        server=config.server.limits, document=config.rag.document_limits, reader_types=types
    )


def _wire_api(api: Api) -> str:
    """Return Llama Stack's name of a kind: to its clients embedding models are inference."""
    return Api.INFERENCE if api is Api.EMBEDDING else api


async def _providers(stack: Stack, principal: Principal) -> list[ProviderInfo]:
    """Return the configured providers, then the server's own."""
    configured = [_provider(status, principal) for status in await stack.providers()]
    config, shown = stack.config, principal.is_operator
    files = ProviderInfo(  # ids and types of these two are Llama Stack's
        api="files",
        kind="files",
        provider_id="files",
        provider_type=_files_type(config.files.url),
        config=config.files.model_dump(mode="json") if shown else {},
        health=await _files_health(stack),
    )
    tools = ProviderInfo(
        api="tool_runtime",
        kind="rag",
        provider_id="rag-runtime",
        provider_type="inline::rag-runtime",
        config=config.rag.model_dump(mode="json") if shown else {},
        health=ProviderHealth(status="OK"),
    )
    return [*configured, files, tools]


def _files_type(url: str | None) -> str:
    """Return the provider type of a place of files; Llama Stack's client knows the first two."""
    return "inline::localfs" if url is None else f"remote::{url.partition(':')[0]}"


async def _files_health(stack: Stack) -> ProviderHealth:
    try:
        await stack.files.check()
    except CorralError as error:
        return ProviderHealth(status="Error", message=str(error))
    return ProviderHealth(status="OK")


def _provider(status: ProviderStatus, principal: Principal) -> ProviderInfo:
    return ProviderInfo(
        api=_wire_api(status.api),
        kind=status.api,
        provider_id=status.provider_id,
        provider_type=status.provider_type,
        config=status.config if principal.is_operator else {},
        health=ProviderHealth(**asdict(status.health)),
        capabilities=status.capabilities.as_dict() if status.capabilities else None,
    )


def _type(spec: ProviderSpec) -> ProviderType:
    return ProviderType(
        api=_wire_api(spec.api),
        kind=spec.api,
        provider_type=spec.provider_type,
        description=spec.description,
        capabilities=spec.capabilities.as_dict() if spec.api is Api.VECTOR_IO else None,
    )
