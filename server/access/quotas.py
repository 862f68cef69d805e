"""Quotas: rate limits by caller, and the time until the next request is allowed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from corral.providers.base.server_config import RateLimits

MIB = 1024 * 1024
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
    """The use of one caller: `with use:` while one of its requests runs."""

    requests: _Bucket
    bytes: _Bucket
    running: int = 0

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
    """Counts the use of each caller in this process.

    Args:
        clock: Returns the time in seconds, from any start.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._uses: dict[Hashable, Use] = {}

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
            self._take_request(use.requests, limits.requests_per_minute, now)
        if limits.mib_per_minute is not None:
            use.bytes.fill(limits.mib_per_minute * MIB, now)
            if use.bytes.left <= 0:
                seconds = (1 - use.bytes.left) * 60 / (limits.mib_per_minute * MIB)
                raise TooMany(f"{limits.mib_per_minute:g} MiB a minute", "mib_per_minute", seconds)
        return use

    def _use(self, caller: Hashable, limits: RateLimits, now: float) -> Use:
        if caller not in self._uses:
            if len(self._uses) >= MAX_CALLERS:
                self._forget(now)
            requests = limits.requests_per_minute or 0
            size = (limits.mib_per_minute or 0) * MIB
            self._uses[caller] = Use(_Bucket(requests, requests, now), _Bucket(size, size, now))
        return self._uses[caller]

    def _take_request(self, bucket: _Bucket, most: int, now: float) -> None:
        bucket.fill(most, now)
        if bucket.left < 1:
            seconds = (1 - bucket.left) * 60 / most
            raise TooMany(f"{most} requests a minute", "requests_per_minute", seconds)
        bucket.left -= 1

    def _forget(self, now: float) -> None:
        """Drop callers that were idle for a minute, whose allowances are full again."""
        idle = [
            caller
            for caller, use in self._uses.items()
            if not (use.running or use.bytes.is_in_debt(now)) and now > use.requests.at + 60
        ]
        for caller in idle:
            del self._uses[caller]
