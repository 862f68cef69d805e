"""No attack succeeds; planted bypasses of the gate, the roles and the tenants are caught by one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corral.api import vector_dbs
from corral.api.errors import Forbidden, NotFound
from corral.api.principal import UNRESTRICTED, Principal, Role
from corral.providers.base.database import Database
from corral.providers.files.store import FileStore
from corral.providers.ingestion.service import Ingestion
from corral.providers.stack import stack
from corral.providers.stack import vector_db_table as registry
from corral.providers.state.keys import ApiKey, KeyStore
from corral.server import routing
from corral.server.access import callers, gate, roles
from corral.server.access.audit import AuditLog, Entry
from corral.server.access.callers import Caller, Callers

from .attacks import (
    ABSENT,
    ATTACKS,
    Attack,
    above_the_role,
    body_parsed_first,
    foreign_deleted,
    foreign_file,
    foreign_id_guessed,
    foreign_job,
    from_elsewhere,
    last_key_revoked,
    names_told,
    no_key,
    old_key,
    same_name,
    unseen,
    world,
)
from .harness import run_config


def test_no_attack_succeeds(tmp_path: Path) -> None:
    """Each attack on the server as it is gets hold of nothing.

    If this fails: the message says which, and what it got.
    """
    got = {}
    for name, attacked in ATTACKS.items():
        home = tmp_path / name
        home.mkdir()
        with world(home) as there:
            got[name] = attacked(there)
    assert {name: what for name, what in got.items() if what} == {}


# --- bypasses: each takes one check away ----------------------------------------------------------

Patch = pytest.MonkeyPatch
Bypass = Callable[[Patch], None]
BYPASSES: dict[str, tuple[Bypass, str]] = {}


def caught_by(attacked: Attack) -> Callable[[Bypass], Bypass]:
    """Register a bypass that an attack must find."""

    def register(bypass: Bypass) -> Bypass:
        BYPASSES[bypass.__name__.strip("_")] = bypass, attacked.__name__
        return bypass

    return register


@caught_by(foreign_id_guessed)
def _a_route_gets_the_whole_stack(patch: Patch) -> None:
    patch.setattr(routing, "stack_of", lambda scope: scope["app"].state.stack)


@caught_by(foreign_id_guessed)
def _an_id_is_found_in_any_tenant(patch: Patch) -> None:
    async def find(self: registry.VectorDBTable, tenant: str, identifier: str) -> Any:
        found = [db for db in await self.all() if db.identifier == identifier]
        own = [db for db in found if db.tenant == tenant]
        return next(iter([*own, *found]), None)

    patch.setattr(registry.VectorDBTable, "find", find)


@caught_by(foreign_id_guessed)
def _a_missing_id_is_another_error_than_a_foreign_one(patch: Patch) -> None:
    real = registry.VectorDBTable.get

    async def get(self: registry.VectorDBTable, tenant: str, identifier: str) -> Any:
        if any(db.identifier == identifier != "docs" for db in await self.all()):
            found = await self.find(tenant, identifier)
            if found is None:
                raise Forbidden(f"{identifier!r} is not yours.")
        return await real(self, tenant, identifier)

    patch.setattr(registry.VectorDBTable, "get", get)


@caught_by(foreign_deleted)
def _a_deletion_looks_in_all_tenants(patch: Patch) -> None:
    real = stack.Stack.unregister

    async def unregister(self: stack.Stack, vector_db_id: str) -> str:
        owner = next(db for db in await self._vector_dbs.all() if db.identifier == vector_db_id)
        return await real(self.for_principal(Principal(owner.tenant)), vector_db_id)

    patch.setattr(stack.Stack, "unregister", unregister)


@caught_by(same_name)
def _open_indexes_are_kept_by_id_alone(patch: Patch) -> None:
    patch.setattr(time, "time", lambda: 1_700_000_000.0)
    patch.setattr(vector_dbs.VectorDB, "key", property(lambda self: ("", self.identifier)))
    real = stack.Stack._key
    patch.setattr(stack.Stack, "_key", lambda self, name: ("", real(self, name)[1]))
    patch.setattr(stack, "same_registration", lambda stored, _: stored)


@caught_by(names_told)
def _a_list_holds_all_tenants(patch: Patch) -> None:
    patch.setattr(registry.VectorDBTable, "of", lambda self, _: self.all())


@caught_by(foreign_file)
def _files_have_no_owner(patch: Patch) -> None:
    patch.setattr(FileStore, "of", lambda self, _: self)


@caught_by(foreign_job)
def _jobs_have_no_owner(patch: Patch) -> None:
    real = Ingestion._all

    def everyones(self: Ingestion, **chosen: Any) -> Any:
        scope = real(self, **chosen)
        return type(scope)(None, **chosen)

    patch.setattr(Ingestion, "_all", everyones)


@caught_by(no_key)
def _a_proxys_header_is_believed(patch: Patch) -> None:
    real = Callers.of

    async def of(self: Callers, headers: Any, address: str) -> Caller:
        if "x-forwarded-user" in headers:
            return Caller(UNRESTRICTED)
        return await real(self, headers, address)

    patch.setattr(Callers, "of", of)


@caught_by(no_key)
def _an_id_is_enough(patch: Patch) -> None:
    patch.setattr("hmac.compare_digest", lambda *_: True)


@caught_by(no_key)
def _unknown_paths_are_public(patch: Patch) -> None:
    real = gate.Gate._serve

    async def serve(self: gate.Gate, scope: Any, receive: Any, send: Any) -> None:
        known = any(route.path_regex.match(scope["path"]) for route in self._routes)
        await (real(self, scope, receive, send) if known else self.app(scope, receive, send))

    patch.setattr(gate.Gate, "_serve", serve)


@caught_by(old_key)
def _keys_are_cached(patch: Patch) -> None:
    real, cached = KeyStore.holder, {}

    async def remembered(self: KeyStore, secret: str) -> ApiKey:
        if secret not in cached:
            cached[secret] = await real(self, secret)
        return cached[secret]

    patch.setattr(KeyStore, "holder", remembered)


@caught_by(old_key)
def _expiry_is_not_looked_at(patch: Patch) -> None:
    real = ApiKey.state
    patch.setattr(ApiKey, "state", lambda key, now: real(key, now).replace("expired", "valid"))


@caught_by(last_key_revoked)
def _only_a_valid_key_counts_as_one(patch: Patch) -> None:
    async def exist(self: KeyStore) -> bool:
        return any(key.state(time.time()) == "valid" for key in await self.all())

    patch.setattr(KeyStore, "exist", exist)


@caught_by(above_the_role)
def _every_role_includes_every_other(patch: Patch) -> None:
    patch.setattr(Role, "includes", lambda *_: True)


@caught_by(above_the_role)
def _every_admin_is_the_operator(patch: Patch) -> None:
    patch.setattr(roles.Needs, "includes", lambda self, who: not self._role or who.may(self._role))


@caught_by(above_the_role)
def _roles_are_declared_and_not_checked(patch: Patch) -> None:
    patch.setattr(roles.Needs, "check", lambda *_: None)


@caught_by(body_parsed_first)
def _the_role_is_checked_behind_the_body(patch: Patch) -> None:
    patch.setattr(routing.ContractRoute, "check_access", lambda *_: None)


@caught_by(from_elsewhere)
def _every_address_is_loopback(patch: Patch) -> None:
    patch.setattr(callers, "is_loopback", lambda _: True)


@caught_by(unseen)
def _refusals_are_not_written_down(patch: Patch) -> None:
    real = AuditLog.write

    def write(self: AuditLog, entry: Any, status: int) -> None:
        if status < 400:
            real(self, entry, status)

    patch.setattr(AuditLog, "write", write)


@caught_by(unseen)
def _what_is_returned_is_not_written_down(patch: Patch) -> None:
    patch.setattr(Entry, "returns", lambda *_: None)


@pytest.mark.parametrize("name", BYPASSES)
def test_a_planted_bypass_is_caught(name: str, tmp_path: Path, monkeypatch: Patch) -> None:
    """With one check taken away, the attack that it stops gets hold of something.

    If this fails: that attack would not notice if somebody removed the check.
    """
    plant, attacked = BYPASSES[name]
    with world(tmp_path) as there:
        plant(monkeypatch)
        assert ATTACKS[attacked](there)


def test_twenty_bypasses_are_planted() -> None:
    """There are as many as the issue asks for, of this half alone."""
    assert len(BYPASSES) >= 20


async def test_foreign_and_missing_take_the_same_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another tenant's id and one that nobody has read the same rows by the same queries.

    If this fails: the time of an answer tells which names others have.
    """
    read: list[tuple[str, int]] = []
    real = Database.read

    async def counting(self: Database, query: str, *bindings: Any) -> Any:
        rows = await real(self, query, *bindings)
        read.append((query, len(rows)))
        return rows

    monkeypatch.setattr(Database, "read", counting)
    config = run_config()
    opened = stack.Stack(config, tmp_path)
    try:
        theirs = vector_dbs.VectorDBRegistration(vector_db_id="theirs", embedding_model="hashing")
        await opened.for_principal(Principal("globex", role=Role.ADMIN)).register(theirs)
        acme = opened.for_principal(Principal("acme", role=Role.ADMIN))
        for call in (acme.index, acme.vector_db, acme.unregister):
            steps = []
            for name in ("theirs", ABSENT):
                read.clear()
                with pytest.raises(NotFound):
                    await call(name)
                await asyncio.sleep(0)
                steps.append(list(read))
            assert steps[0] == steps[1]
    finally:
        await opened.close()
