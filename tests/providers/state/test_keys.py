"""API keys: kept as a hash, found by their public part, refused once they are revoked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest

from corral.api.errors import ConfigError, Conflict, NotFound, Unauthenticated
from corral.api.principal import Role
from corral.providers.base.server_config import RateLimits
from corral.providers.state.keys import KeyStore
from corral.providers.state.opening import STATE_NAME
from corral.providers.state.state import State


@dataclass
class Clock:
    """A time that a test moves."""

    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def opened(
    home: Path, clock: Callable[[], float] | None = None, url: str = "sqlite"
) -> AsyncIterator[KeyStore]:
    """Yield the keys of a state and close it."""
    state = State(home, url)
    store = KeyStore(state, clock) if clock else KeyStore(state)
    try:
        yield store
    finally:
        await store.close()
        await state.close()


async def test_a_key_says_who_holds_it(tmp_path: Path, state_url: str) -> None:
    """What was given at its creation comes back, and two keys have nothing in common.

    If this fails: a holder gets somebody else's tenant, groups, role or limits.
    """
    async with opened(tmp_path, url=state_url) as keys:
        limits = RateLimits(requests_per_minute=3)
        made, secret = await keys.create(
            "ann", tenant="acme", groups=frozenset({"hr", "x"}), role=Role.WRITER, limits=limits
        )
        _, other = await keys.create("bob")
        found = await keys.holder(secret)
    assert (found.principal, found.limits) == (made.principal, limits)
    assert found.principal.tokens() >= {"user:ann", "group:hr", "group:x", "tenant:acme"}
    assert re.fullmatch(r"corral_[0-9a-f]{12}_[0-9a-f]{64}", secret)
    assert secret.split("_")[1:] != other.split("_")[1:]


async def test_a_key_of_an_older_version_keeps_its_names(tmp_path: Path) -> None:
    """A name that is refused today does not keep a stored key, or the others, from working.

    If this fails: after an upgrade every request with a key ends in a 500.
    """
    async with opened(tmp_path) as keys:
        _, secret = await keys.create("ann", groups=frozenset({"hr"}))
        _, other = await keys.create("bob")
    with closing(apsw.Connection(str(tmp_path / STATE_NAME))) as file:
        file.execute("""UPDATE keys SET user = 'ann ', groups = '["*"]' WHERE user = 'ann'""")
    async with opened(tmp_path) as keys:
        assert (await keys.holder(secret)).principal.tokens() >= {"user:ann ", "group:*"}
        assert (await keys.holder(other)).principal.user == "bob"
        assert [key.principal.user for key in await keys.all()] == ["ann ", "bob"]


async def test_the_key_itself_is_kept_nowhere(tmp_path: Path) -> None:
    """No file of the data folder holds a key, or its secret part; others may not read the file.

    If this fails: whoever gets a backup of the folder can act as everyone.
    """
    async with opened(tmp_path) as keys:
        _, secret = await keys.create("ann")
        await keys.holder(secret)
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert kept
    assert secret.rpartition("_")[2].encode() not in kept
    assert (tmp_path / STATE_NAME).stat().st_mode & 0o077 == 0


async def test_what_is_no_key_is_refused(tmp_path: Path, state_url: str) -> None:
    """A wrong secret for a right id, another key's secret, any other text: all the same refusal.

    If this fails: an id, which logs show, is enough, or a refusal tells which ids there are.
    """
    async with opened(tmp_path, url=state_url) as keys:
        _, secret = await keys.create("ann")
        _, other = await keys.create("bob")
        head, key_id, tail = secret.split("_")
        flipped = tail[:-1] + ("0" if tail[-1] != "0" else "1")
        wrong = [
            f"{head}_{key_id}_{flipped}",
            f"{head}_{key_id}_{other.split('_')[2]}",
            f"{head}_{'0' * 12}_{tail}",
            f"{head}_{key_id}_",
            secret.upper(),
            secret + "0",
            secret + "\n",
            tail,
            "",
            "é\udc80\0",
            f"{head}_{key_id}' OR 1=1 --_{tail}",
        ]
        told = set()
        for text in wrong:
            with pytest.raises(Unauthenticated) as refused:
                await keys.holder(text)
            told.add(str(refused.value))
    assert len(told) == 1


async def test_a_revoked_key_is_refused_at_once(tmp_path: Path, state_url: str) -> None:
    """Another process revokes it; a server that has just accepted it refuses the next request.

    If this fails: keys are cached, and a leaked one goes on working.
    """
    async with (
        opened(tmp_path, url=state_url) as server,
        opened(tmp_path, url=state_url) as operator,
    ):
        key, secret = await operator.create("ann")
        assert (await server.holder(secret)).key_id == key.key_id
        await operator.revoke(key.key_id)
        with pytest.raises(Unauthenticated, match="is revoked"):
            await server.holder(secret)
        with pytest.raises(Conflict):
            await operator.revoke(key.key_id)
        with pytest.raises(NotFound):
            await operator.revoke("0" * 12)


async def test_an_expired_key_is_refused(tmp_path: Path, state_url: str) -> None:
    """It works until its last second and not after."""
    clock = Clock()
    async with opened(tmp_path, clock, state_url) as keys:
        _, secret = await keys.create("ann", expires_in_seconds=60)
        clock.now += 59.9
        await keys.holder(secret)
        clock.now += 0.1
        with pytest.raises(Unauthenticated, match="is expired"):
            await keys.holder(secret)


async def test_the_last_use_is_noted(tmp_path: Path, state_url: str) -> None:
    """To the minute, so that a busy key costs no write for each request."""
    clock = Clock()
    async with opened(tmp_path, clock, state_url) as keys:
        _, secret = await keys.create("ann")
        assert [key.last_used_at for key in await keys.all()] == [None]
        for seconds in (0, 30, 31):
            clock.now += seconds
            await keys.holder(secret)
            await asyncio.gather(*keys._writing)
            if seconds < 31:
                assert [key.last_used_at for key in await keys.all()] == [1_000_000.0]
        assert [key.last_used_at for key in await keys.all()] == [1_000_061.0]


async def test_keys_exist_for_good(tmp_path: Path) -> None:
    """Revoking the last key, or losing the file, does not make a running server open to all.

    If this fails: who revokes a leaked key lets everyone in.
    """
    async with opened(tmp_path) as keys:
        assert not await keys.exist()
        key, _ = await keys.create("ann")
        await keys.revoke(key.key_id)
        assert await keys.exist()
    async with opened(tmp_path) as again:
        assert await again.exist()
        (tmp_path / STATE_NAME).unlink()
        assert await again.exist()


async def test_a_damaged_file_lets_nobody_in(tmp_path: Path) -> None:
    """It is an error that says what to do, and no reason to take nobody's word for anything."""
    (tmp_path / STATE_NAME).write_bytes(b"no database" * 1000)
    async with opened(tmp_path) as keys:
        with pytest.raises(ConfigError, match=r"state\.db is damaged"):
            await keys.exist()


@pytest.mark.parametrize("name", ["a\0b", "x" * 256, "\ud800"])
async def test_an_impossible_name_makes_no_key(tmp_path: Path, name: str) -> None:
    """It is refused before anything is written."""
    async with opened(tmp_path) as keys:
        with pytest.raises(ValueError, match="name"):
            await keys.create(name)
        assert await keys.all() == []
