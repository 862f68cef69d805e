"""Resolve a registration to a vector DB: fill in defaults, and run all checks without an engine."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import ValidationError

from corral.api.embedder import Embedder, ModelInfo
from corral.api.errors import Conflict, Forbidden, InvalidRequest
from corral.api.findings import first_finding
from corral.api.principal import Principal
from corral.api.provider import Capabilities
from corral.api.scope import Scope
from corral.api.vector_dbs import SearchDefaults, VectorDB, VectorDBRegistration
from corral.providers.stack.configured import ConfiguredProviders
from corral.providers.stack.host import default_provider


def resolved(
    registration: VectorDBRegistration, providers: ConfiguredProviders, principal: Principal
) -> VectorDB:
    """Return the vector DB to register, with defaults filled in, after all checks without engine.

    Args:
        registration: The request.
        providers: The configured providers.
        principal: The caller; its tenant owns the vector DB. Only the operator attaches tables.

    Raises:
        UnknownProvider: The provider is not configured.
        NotFound: No provider serves the embedding model.
        InvalidRequest: The provider or the model does not support a setting, or the request names
            no model and the default model cannot be used.
    """
    provider_id = registration.provider_id or default_provider(providers.config)
    spec = providers.spec(provider_id)
    _, info = providers.model(registration.embedding_model or providers.usable_default_model())
    _check_dimension(registration.embedding_dimension, info)
    providers.check_models(registration)
    resource_id = registration.provider_vector_db_id or registration.vector_db_id
    if resource_id != registration.vector_db_id:
        known = providers.vector_io(provider_id).resources() if principal.is_operator else ()
        check_resource(resource_id, provider_id, known)
    settings = registration.model_dump(
        exclude={"vector_db_id", "provider_id", "provider_vector_db_id", "embedding_dimension"}
    )
    settings["embedding_model"] = info.model
    if registration.unrelated_cosine is None:
        settings["unrelated_cosine"] = info.unrelated_cosine
    if spec.default_ranker and "ranker" not in registration.model_fields_set:
        settings["ranker"] = spec.default_ranker
    vector_db = VectorDB(
        identifier=registration.vector_db_id,
        tenant=principal.tenant,
        provider_id=provider_id,
        provider_resource_id=resource_id,
        embedding_dimension=info.dimension,
        created_at=time.time(),
        **settings,
    )
    check_capabilities(vector_db, spec.capabilities)
    return vector_db


def check_rights(vector_db: VectorDB, principal: Principal, attached: Collection[str]) -> None:
    """Raise Forbidden if the principal may not create this vector DB.

    Args:
        attached: Names of the operator's tables that the provider can attach.

    Raises:
        Forbidden: Its default ACL has tokens that the principal does not hold, or it would attach
            a table and the principal is not the operator.
    """
    Scope(principal, vector_db.default_acl).check_acl(vector_db.default_acl, field="default_acl")
    foreign = not (vector_db.tenant or principal.is_operator)
    if foreign and vector_db.provider_resource_id in attached:
        raise Forbidden(
            f"{vector_db.provider_resource_id!r} is a table that only the operator can attach.",
            hint="Choose another id, or ask an admin to register it.",
            field="vector_db_id",
        )


def _check_dimension(given: int | None, info: ModelInfo) -> None:
    if given is not None and given != info.dimension:
        raise InvalidRequest(
            f"embedding_dimension must be {info.dimension} for {info.model} (got {given}).",
            hint="Leave embedding_dimension out to take the model's.",
            field="embedding_dimension",
        )


def check_capabilities(vector_db: VectorDB, capabilities: Capabilities) -> None:
    """Reject settings that the provider does not support, before its engine sees the call.

    Raises:
        InvalidRequest: Mode, metric, dimension or fuzziness is not supported; the message lists
            the supported values.
    """
    if vector_db.search_mode not in capabilities.modes:
        raise InvalidRequest(
            f"{vector_db.provider_id} does not support search_mode {vector_db.search_mode}.",
            hint=f"It supports: {', '.join(capabilities.modes)}.",
            field="search_mode",
        )
    if not vector_db.normalize and vector_db.metric not in capabilities.metrics:
        raise InvalidRequest(
            f"{vector_db.provider_id} cannot search {vector_db.metric} with normalize: false.",
            hint=f"It can search: {', '.join(capabilities.metrics)}.",
            field="metric",
        )
    if vector_db.fuzzy and not capabilities.fuzzy:
        raise InvalidRequest(
            f"{vector_db.provider_id} has no fuzzy keyword search.",
            hint="Leave fuzzy out, or use a provider with this capability (`corral providers`).",
            field="fuzzy",
        )
    if vector_db.embedding_dimension > capabilities.max_dimension:
        raise InvalidRequest(
            f"{vector_db.provider_id} holds at most {capabilities.max_dimension} dimensions; "
            f"{vector_db.embedding_model} has {vector_db.embedding_dimension}.",
            field="embedding_model",
        )


def check_resource(name: str, provider_id: str, known: Collection[str]) -> None:
    """Check a `provider_vector_db_id`.

    Raises:
        InvalidRequest: The name is not in `known`, the names that the provider can attach.
    """
    if name in known:
        return
    hint = "Leave provider_vector_db_id out: Corral names its own storage."
    if known:
        hint = f"It knows: {', '.join(sorted(known))}. Or leave provider_vector_db_id out."
    raise InvalidRequest(
        f"{provider_id} has nothing named {name!r} to attach.",
        hint=hint,
        field="provider_vector_db_id",
    )


def check_fingerprint(vector_db: VectorDB, embedder: Embedder) -> None:
    """Check that an embedder is the one that made the stored embeddings.

    Raises:
        Conflict: It is not; the message names the differences, the hint the remedy.
    """
    stored, now = vector_db.fingerprint, embedder.fingerprint
    if stored is None or stored == now:
        return
    raise Conflict(
        f"The embedding model {vector_db.embedding_model!r} is not the one that made the "
        f"embeddings of vector DB {vector_db.identifier!r}: {fingerprints_differ(stored, now)}.",
        hint=f"Embed it again: corral reembed {vector_db.identifier!r}. Or restore the embedding "
        "provider's settings and files. Keyword search still works.",
        field="embedding_model",
    )


def fingerprints_differ(stored: str, now: str) -> str:
    """Describe the differences of two fingerprints, such as `pooling was "mean", is "cls"`."""
    then, today = json.loads(stored), json.loads(now)
    parts = [name for name in sorted({*then, *today}) if then.get(name) != today.get(name)]
    return "; ".join(
        f"{name} was {_short(then.get(name))}, is {_short(today.get(name))}" for name in parts
    )


def _short(part: object) -> str:
    """Return a part of a fingerprint for a message; digests are cut to twelve digits."""
    if part is None:
        return "not set"
    if isinstance(part, str) and re.fullmatch("[0-9a-f]{64}", part):
        return f"the file with sha256 {part[:12]}..."
    text = json.dumps(part, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:56]}..."


def same_registration(stored: VectorDB, asked: VectorDB) -> None:
    """Check that a stored vector DB has the requested settings, ignoring times.

    Raises:
        Conflict: It differs; the message names the fields.
    """
    ours, theirs = stored.model_dump(mode="json"), asked.model_dump(mode="json")
    asked_for = ours.keys() - {"created_at", "rebuilt_at", "fingerprint", "installation", "host"}
    differing = [name for name in ours if name in asked_for and ours[name] != theirs[name]]
    if differing:
        raise Conflict(
            f"Vector DB {stored.identifier!r} is registered with another {', '.join(differing)}.",
            hint="Delete it first, or leave the settings as they are.",
            field=differing[0],
        )


QUERY_SETTINGS = frozenset(
    {"search_mode", "ranker", "rerank", "default_acl", *SearchDefaults.model_fields}
)
"""Settings that affect only queries, and so may change in a vector DB with chunks."""

REBUILD_SETTINGS = frozenset({"embedding_model", "language", "field_weights"})
"""Settings that affect stored data, and so need a rebuild to change."""


def with_search(stored: VectorDB, settings: Mapping[str, Any]) -> VectorDB:
    """Return a vector DB with changed query settings.

    Args:
        stored: The current registration.
        settings: Some of `QUERY_SETTINGS`, in the format of a registration.

    Raises:
        InvalidRequest: A setting is not in `QUERY_SETTINGS`, or malformed.
    """
    unknown = sorted(settings.keys() - QUERY_SETTINGS)
    if unknown:
        raise InvalidRequest(
            f"{unknown[0]} cannot be changed in an existing vector DB.",
            hint=f"These can: {', '.join(sorted(QUERY_SETTINGS))}. With a rebuild: "
            f"{', '.join(sorted(REBUILD_SETTINGS))}.",
            field=unknown[0],
        )
    return with_settings(stored, settings)


def with_settings(stored: VectorDB, settings: Mapping[str, Any]) -> VectorDB:
    """Return a vector DB with some settings changed.

    Raises:
        InvalidRequest: A setting is malformed.
    """
    try:
        return VectorDB.model_validate({**stored.model_dump(mode="json"), **settings})
    except ValidationError as error:
        path, words = first_finding(error)
        raise InvalidRequest(f"{path}: {words}.", field=path) from None
