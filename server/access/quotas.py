"""Quotas: rate limits by caller, and the time until it may ask again.

A process with a state of its own counts in memory. Processes that share a state take small parts of
each caller's allowances from it, and count these down in memory.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field

from corral.api.errors import ProviderError
from corral.providers.base.server_config import RateLimits
from corral.providers.state.allowances import Allowances, Part

MIB = 1024 * 1024
PARTS = 20
"""A process that shares the state takes a minute's allowance in this many parts."""
MAX_CALLERS = 10_000
"""Maximum callers to remember; beyond it, callers that were idle for a minute are dropped."""


class TooMany(Exception):
    """A caller has used up its quota.

    Attributes:
        what: The limit, in words.
        setting: The limit's setting.
        seconds: Seconds until the next request is allowed, >= 1.
    """

    def __init__(self, what: str, setting: str, seconds: float) -> None:
        super().__init__(what)
        self.what, self.setting = what, setting
        self.seconds = max(1, math.ceil(seconds))


@dataclass(slots=True)
class _Bucket:
    """An allowance that refills within a minute; it may become negative."""

    most: float
    left: float
    at: float

    def fill(self, most: float, now: float) -> None:
        self.left = min(most, self.left + (now - self.at) * most / 60)
        self.most, self.at = most, now

    def is_in_debt(self, now: float) -> bool:
        return self.left + (now - self.at) * self.most / 60 < 0 < self.most


@dataclass(slots=True)
class Use:
    """The use of one caller's quota; held as `with use:` while one of its requests runs."""

    requests: _Bucket
    bytes: _Bucket
    running: int = 0
    refilling: asyncio.Lock = field(default_factory=asyncio.Lock)
    refusal: tuple[float, TooMany] | None = None

    def __enter__(self) -> None:
        self.running += 1

    def __exit__(self, *_: object) -> None:
        self.running -= 1

    def count(self, size: int) -> None:
        """Count bytes of an incoming body.

        A body is never cut off: if it exceeds the allowance, its caller must wait until the excess
        has been refilled.
        """
        self.bytes.left -= size


class Quotas:
    """Counts the use of each caller.

    Args:
        clock: Returns the time in seconds, from any start.
        shared: The allowances of all processes; None: this process counts for itself.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, shared: Allowances | None = None
    ) -> None:
        self._clock, self._shared = clock, shared
        self._uses: dict[Hashable, Use] = {}

    async def refill(self, caller: Hashable, limits: RateLimits) -> None:
        """Take parts of the shared allowances if this process has used up its own; then `admit`.

        Without shared allowances this does nothing. A refused caller is refused from memory until
        its allowance has filled.

        Raises:
            TooMany: The caller has used up its quota.
            ProviderError: The state cannot be written.
        """
        if self._shared is None or not (limits.requests_per_minute or limits.mib_per_minute):
            return
        use = self._use(caller, limits, self._clock())
        async with use.refilling:
            until, last = use.refusal or (0.0, None)
            if last is not None and self._clock() < until:
                raise TooMany(last.what, last.setting, until - self._clock())
            if _is_short(use, limits):
                await self._take(self._shared, caller, use, limits)

    async def settle(self, caller: Hashable, limits: RateLimits) -> None:
        """Record in the shared allowances what a body has taken beyond this process's part."""
        use = self._uses.get(caller)
        if self._shared is None or use is None or not limits.mib_per_minute:
            return
        async with use.refilling:
            if use.bytes.left < 0:
                with suppress(TooMany, ProviderError):  # the next refill does it
                    await self._take(self._shared, caller, use, limits)

    def admit(self, caller: Hashable, limits: RateLimits) -> Use:
        """Admit a request; the returned `Use` counts it while it is entered.

        Raises:
            TooMany: The caller has used up its quota.
        """
        now = self._clock()
        use = self._use(caller, limits, now)
        if limits.concurrent_requests is not None and use.running >= limits.concurrent_requests:
            count = limits.concurrent_requests
            raise TooMany(f"{count} requests at once", "concurrent_requests", 1)
        if limits.requests_per_minute is not None:
            self._fill(use.requests, limits.requests_per_minute, now)
            self._take_request(use.requests, limits.requests_per_minute)
        if limits.mib_per_minute is not None:
            self._fill(use.bytes, limits.mib_per_minute * MIB, now)
            if use.bytes.left <= 0:
                size = limits.mib_per_minute * MIB
                raise _too_many_bytes(size, (1 - use.bytes.left) * 60 / size)
        return use

    def _use(self, caller: Hashable, limits: RateLimits, now: float) -> Use:
        if caller not in self._uses:
            if len(self._uses) >= MAX_CALLERS:
                self._forget(now)
            requests = limits.requests_per_minute or 0
            size = (limits.mib_per_minute or 0) * MIB
            full = self._shared is None
            self._uses[caller] = Use(
                _Bucket(requests, requests * full, now), _Bucket(size, size * full, now)
            )
        return self._uses[caller]

    def _fill(self, bucket: _Bucket, most: float, now: float) -> None:
        """Refill an allowance for the elapsed time; shared ones are refilled by `refill` only."""
        if self._shared is None:
            bucket.fill(most, now)
        else:
            bucket.at = now

    async def _take(
        self, shared: Allowances, caller: Hashable, use: Use, limits: RateLimits
    ) -> None:
        """Settle the debt of this process, and take parts of the allowances that it has used up."""
        count, size = limits.requests_per_minute or 0, (limits.mib_per_minute or 0) * MIB
        requests = Part(count, 0, max(1, count / PARTS) if use.requests.left < 1 else 0)
        debt = max(0.0, -use.bytes.left)
        part = max(1, size / PARTS) if use.bytes.left < 1 else 0
        first, second = await shared.take(_name(caller), requests, Part(size, debt, part))
        use.requests.left += first.amount
        use.bytes.left += debt + second.amount
        use.refusal = None
        for bucket, grant, rate, error_of in (
            (use.requests, first, count, _too_many_requests),
            (use.bytes, second, size, _too_many_bytes),
        ):
            if rate and bucket.left < 1:
                error = error_of(rate, (1 - grant.left) * 60 / rate)
                use.refusal = self._clock() + (1 - grant.left) * 60 / rate, error
                raise error

    def _take_request(self, bucket: _Bucket, most: int) -> None:
        if bucket.left < 1:
            raise _too_many_requests(most, (1 - bucket.left) * 60 / most)
        bucket.left -= 1

    def _forget(self, now: float) -> None:
        """Drop callers that were idle for a minute; their allowances are full again."""
        idle = [
            caller
            for caller, use in self._uses.items()
            if not (use.running or use.bytes.is_in_debt(now)) and now > use.requests.at + 60
        ]
        for caller in idle:
            del self._uses[caller]


def _is_short(use: Use, limits: RateLimits) -> bool:
    """Return True if this process's part of an allowance does not admit a request."""
    requests = limits.requests_per_minute is not None and use.requests.left < 1
    return requests or (limits.mib_per_minute is not None and use.bytes.left < 1)


def _name(caller: Hashable) -> str:
    """Return the caller's name in the state: the id of a key, or tenant and user as JSON."""
    return caller if isinstance(caller, str) else json.dumps(caller)


def _too_many_requests(per_minute: float, seconds: float) -> TooMany:
    return TooMany(f"{per_minute} requests a minute", "requests_per_minute", seconds)


def _too_many_bytes(per_minute: float, seconds: float) -> TooMany:
    return TooMany(f"{per_minute / MIB:g} MiB a minute", "mib_per_minute", seconds)
