"""`corral bench users`: clients that ask without rest, and questions that arrive at a rate."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from click.testing import CliRunner

from corral.bench.speed import users
from corral.bench.speed.asking import closed_loop, open_loop
from corral.server.cli.cli import main

ASK = ("/ask", {"text": "sheep"})


class Desk:
    """A server that serves one request at a time, and counts who is there at once."""

    def __init__(self, seconds: float, status: int = 200) -> None:
        self.most, self.served = 0, 0
        self._seconds, self._status = seconds, status
        self._there, self._turn = 0, asyncio.Lock()
        self._handlers: list[asyncio.Task[Any]] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Serve, and yield the address."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with server:
            yield f"http://{host}:{port}"
            await asyncio.gather(*self._handlers)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._handlers += filter(None, [asyncio.current_task()])
        while head := await reader.read(4096):
            assert head.startswith(b"POST /ask HTTP/1.1\r\n")
            assert head.endswith(b'{"text": "sheep"}')
            self._there += 1
            self.most = max(self.most, self._there)
            async with self._turn:
                await asyncio.sleep(self._seconds)
            self._there -= 1
            self.served += 1
            writer.write(b"HTTP/1.1 %d X\r\nContent-Length: 2\r\n\r\nno" % self._status)
        writer.close()
        await writer.wait_closed()


async def test_clients_ask_again_when_they_have_their_answer() -> None:
    """In a closed loop so many requests are under way as there are clients, and all are timed."""
    desk = Desk(0.002)
    async with desk.running() as url:
        answered = await closed_loop(url, itertools.repeat([ASK]), 3, 0.2)
    assert desk.most == 3
    assert len(answered.latencies) == desk.served >= 3
    assert answered.rate == len(answered.latencies) / answered.seconds


async def test_arrivals_are_timed_from_when_they_were_due() -> None:
    """Questions come at their rate though the server is slower, and waiting for a turn counts.

    If this fails: a server that cannot keep up looks as fast as one that can.
    """
    desk = Desk(0.02)
    async with desk.running() as url:
        answered = await open_loop(url, itertools.repeat([ASK]), 200, 0.2)
    assert desk.served == len(answered.latencies) == 40
    assert (
        max(answered.latencies) > 40 * 0.02 - 0.2 - 0.02
    )  # the last was due 0.2 s after the first
    assert answered.ms(0.99) >= answered.ms(0.5)


async def test_a_question_may_take_several_requests() -> None:
    """They are sent at once, as the page does, and each has its latency."""
    desk = Desk(0.01)
    async with desk.running() as url:
        answered = await open_loop(url, itertools.repeat([ASK, ASK, ASK]), 10, 0.1)
    assert (desk.most, desk.served, len(answered.latencies)) == (3, 3, 3)
    assert answered.questions == 1, "a rate of the open loop would be three times too high"


async def test_refusals_end_the_measurement() -> None:
    """An answer that is none is an error with the server's words, not a fast answer."""
    async with Desk(0, 500).running() as url:
        with pytest.raises(RuntimeError, match="/ask: no"):
            await closed_loop(url, itertools.repeat([ASK]), 1, 0.1)


def test_no_question_is_asked_twice() -> None:
    """What is remembered of a question serves nobody in a measurement."""
    asked = [text for seed in (1, 2) for text in itertools.islice(users.questions(seed), 500)]
    assert len(set(asked)) == len(asked)


@pytest.mark.parametrize("option", ["--clients", "--workers", "--rates"])
@pytest.mark.parametrize("value", ["0", "x", "4,-1"])
def test_numbers_are_checked(option: str, value: str) -> None:
    """A list of numbers holds numbers above 0; nothing is started for another one."""
    done = CliRunner().invoke(main, ["bench", "users", option, value])
    assert done.exit_code == 2
    assert option in done.output


def test_a_server_is_measured() -> None:
    """The table has every load: clients, rates of the open loop, and the page."""
    options = ["--count", "20", "--clients", "1,2", "--rates", "5", "--seconds", "0.2"]
    done = CliRunner().invoke(main, ["bench", "users", *options, "--rounds", "1"])
    for name in ("1 client", "2 clients", "5 questions/s", users.PAGE):
        assert name in done.output
    assert "1 clients" not in done.output
    verdict = re.search(r"p95 (\d+) ms; p95 <= (\d+): (holds|FAILS)", done.output)
    assert verdict, done.output
    assert int(verdict[2]) == users.PAGE_MS
    # A busy machine may be too slow for the page: then the command says so and fails.
    holds = verdict[3] == "holds"
    assert done.exit_code == (0 if holds else 1), done.output
    assert int(verdict[1]) <= users.PAGE_MS if holds else int(verdict[1]) >= users.PAGE_MS
