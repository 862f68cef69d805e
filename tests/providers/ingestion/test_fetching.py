"""URLs are fetched from allowed hosts at public addresses only, and within bounds."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import httpx
import pytest

from corral.api.errors import ConfigError, InvalidRequest, ProviderTimeout, Unavailable
from corral.providers.base.config import RagSettings
from corral.providers.ingestion.read.fetching import Fetched, Fetcher, IPAddress, is_public, resolve

HOST = "docs.example.org"


def answer(body: bytes, *headers: str, status: str = "200 OK", length: int | None = None) -> bytes:
    """Return an HTTP answer."""
    size = len(body) if length is None else length
    head = [f"HTTP/1.1 {status}", f"Content-Length: {size}", *headers, "Connection: close"]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def redirect(location: str) -> bytes:
    """Return an HTTP answer that points elsewhere."""
    return answer(b"", f"Location: {location}", status="302 Found")


@dataclass
class Site:
    """A site on 127.0.0.1 and what it was asked; a path without an answer never ends its own."""

    answers: dict[str, bytes | None]
    port: int = 0
    requests: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    at_work: set[asyncio.Task[None] | None] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, of a client that may go away meanwhile."""
        self.at_work.add(asyncio.current_task())
        with suppress(ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split()[1]
            self.requests.append(path)
            self.heads.append(head)
            found = self.answers.get(path, answer(b"", status="404 Not Found"))
            if found is None:
                await self.trickle(reader, writer)
            else:
                writer.write(found.replace(b"PORT", str(self.port).encode()))
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def trickle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send a byte now and then, until the client has had enough."""
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        closed = asyncio.create_task(reader.read())
        while not closed.done():
            writer.write(b"x")
            await asyncio.wait([closed], timeout=0.02)
        await closed

    def url(self, path: str, host: str = HOST) -> str:
        """Return the URL of a path, by a name that the tests resolve to this site."""
        return f"http://{host}:{self.port}{path}"


@asynccontextmanager
async def site(**answers: bytes | None) -> AsyncIterator[Site]:
    """Run a site whose paths are the names given."""
    running = Site({f"/{name}": found for name, found in answers.items()})
    server = await asyncio.start_server(running.serve, "127.0.0.1", 0)
    running.port = server.sockets[0].getsockname()[1]
    async with server:
        yield running
        await asyncio.gather(*(task for task in running.at_work if task))


class Names:
    """A resolver with a fixed answer for each name, or one for each time it is asked."""

    def __init__(self, **addresses: Sequence[str]) -> None:
        self.addresses = {name.replace("_", "."): list(a) for name, a in addresses.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host not in self.addresses:
            raise OSError(f"unknown host {host}")
        return self.addresses[host]


LOCAL = {"docs_example_org": ["127.0.0.1"], "cdn_example_org": ["127.0.0.1"]}


def local_is_public(address: IPAddress) -> bool:
    """Take this machine, where the tests' site runs, for the internet."""
    return str(address) == "127.0.0.1" or is_public(address)


def fetcher(
    *hosts: str,
    resolver: Names | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
    **settings: float,
) -> Fetcher:
    """Return a fetcher for which 127.0.0.1 is public."""
    chosen = RagSettings.model_validate({"allowed_url_hosts": list(hosts or (HOST,)), **settings})
    names = resolver or Names(**LOCAL)
    return Fetcher(chosen, is_public=local_is_public, resolver=names, transport=transport)


async def test_a_document_of_an_allowed_host_is_fetched() -> None:
    """Body, content type and final address; the host gets its name in the Host header."""

    async def run() -> tuple[Fetched, Site]:
        async with site(a=answer(b"grass", "Content-Type: text/markdown")) as running:
            return await fetcher().fetch(running.url("/a#part")), running

    fetched, running = await run()
    assert fetched.data == b"grass"
    assert fetched.content_type == "text/markdown"
    assert f"host: {HOST}:{running.port}" in running.heads[0].lower()
    assert running.requests == ["/a"]


async def test_nothing_is_fetched_by_default() -> None:
    """Without allowed hosts every URL is refused, by the name of the setting, before a look-up."""
    names = Names(**LOCAL)
    off = Fetcher(RagSettings(), resolver=names)
    for url in (f"http://{HOST}/a", "https://127.0.0.1/", "http://localhost:8321/v1/health"):
        with pytest.raises(InvalidRequest, match=r"rag\.allowed_url_hosts") as caught:
            await off.fetch(url)
        assert caught.value.field == "content.uri"
    assert names.asked == []


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://docs.example.org/x", "gopher://docs.example.org", "//x/y",
     "javascript:alert(1)", "/etc/passwd", "FILE:///etc/passwd", "unix:///run/x.sock"],
)  # fmt: skip
async def test_other_schemes_are_refused(url: str) -> None:
    """Only http and https; the error names the setting that opens them."""
    with pytest.raises(InvalidRequest, match=r"rag\.allowed_url_hosts"):
        await fetcher().fetch(url)


@pytest.mark.parametrize(
    "url",
    ["http://", "http:///x", "http://docs.example.org:0/", "http://docs.example.org:99999/",
     "http://docs.example.org:x/", "http://[::1/", "http://docs.example.org/\r\nX: y"],
)  # fmt: skip
async def test_a_malformed_url_is_refused(url: str) -> None:
    """No host, no such port, control characters."""
    with pytest.raises(InvalidRequest, match="malformed"):
        await fetcher().fetch(url)


@pytest.mark.parametrize(
    "host",
    ["evil.org", "docs.example.org.evil.org", "xdocs.example.org", "sub.docs.example.org",
     "example.org", "docs.example.orgx", "127.0.0.1", "[::1]", "docs.example.org%00.evil.org",
     "0x7f000001", "2130706433"],
)  # fmt: skip
async def test_hosts_match_exactly(host: str) -> None:
    """No suffix, prefix, subdomain or other spelling of an address passes."""
    with pytest.raises(InvalidRequest, match="not fetched from"):
        await fetcher().fetch(f"http://{host}/a")


@pytest.mark.parametrize(
    ("allowed", "asked"),
    [(HOST, "DOCS.Example.ORG"), ("Docs.EXAMPLE.org", HOST), (HOST, f"{HOST}."), (f"{HOST}.", HOST),
     ("bücher.example", "xn--bcher-kva.example"), ("xn--bcher-kva.example", "BÜCHER.example"),
     ("2606:4700::1111", "[2606:4700::1111]"), ("[::1]", "[::1]"), ("8.8.8.8", "8.8.8.8")],
)  # fmt: skip
async def test_spellings_of_one_host_are_one(allowed: str, asked: str) -> None:
    """Case, the final dot and IDNA do not matter."""
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, stream=httpx.ByteStream(b"ok"))

    class Anywhere(Names):
        async def __call__(self, host: str, port: int) -> Sequence[str]:
            return ["127.0.0.1"]

    transport = httpx.MockTransport(handle)
    await fetcher(allowed, resolver=Anywhere(), transport=transport).fetch(f"https://{asked}/")
    assert seen[0].url.host == "127.0.0.1"


@pytest.mark.parametrize(
    "host", ["https://docs.example.org", "docs.example.org/x", "docs.example.org:80", "*",
             "*.example.org", "a b", "", "u@docs.example.org", "docs.example.org?x"]
)  # fmt: skip
def test_an_allowed_host_is_a_host_name(host: str) -> None:
    """What could never match is the operator's mistake and said at the start."""
    with pytest.raises(ConfigError, match=r"rag\.allowed_url_hosts"):
        Fetcher(RagSettings(allowed_url_hosts=[host]))


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254",
     "100.64.0.1", "0.0.0.0", "224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.2.1",
     "198.18.0.1", "::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "fec0::1",
     "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1",
     "2002:7f00:1::", "2001:0:7f00:1::", "2001:db8::1", "100::1", "fe80::1%eth0"],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    """Private, shared, local, multicast, reserved, documentation, and IPv4 within IPv6."""
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "2a00:1450::1"])
def test_addresses_that_are_public(address: str) -> None:
    """The rest of the internet."""
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "addresses",
    [["10.0.0.1"], ["::1"], ["::ffff:10.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["169.254.169.254"]],
)
async def test_an_allowed_name_at_a_private_address_is_refused(addresses: list[str]) -> None:
    """Also where only one of several addresses is private; no connection is made."""
    transport = httpx.MockTransport(lambda request: pytest.fail("connected"))
    names = Names(docs_example_org=addresses)
    with pytest.raises(InvalidRequest, match="not on the public internet"):
        await fetcher(resolver=names, transport=transport).fetch(f"http://{HOST}/")


async def test_the_address_that_was_checked_is_connected_to() -> None:
    """One look-up per request, and the connection goes to its answer (no DNS rebinding).

    If this fails: a name server that answers differently the second time reaches the inside.
    """

    class Rebinding(Names):
        async def __call__(self, host: str, port: int) -> Sequence[str]:
            self.asked.append(host)
            return ["127.0.0.1"] if len(self.asked) == 1 else ["10.0.0.1"]

    names = Rebinding()

    async def run() -> tuple[Fetched, Site]:
        async with site(a=answer(b"grass")) as running:
            return await fetcher(resolver=names).fetch(running.url("/a")), running

    fetched, running = await run()
    assert fetched.data == b"grass"
    assert names.asked == [HOST]
    assert running.requests == ["/a"]


async def test_a_tls_connection_is_made_for_the_name() -> None:
    """The address is pinned, while SNI, and with it the check of the certificate, has the name."""
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, stream=httpx.ByteStream(b"ok"))

    names = Names(docs_example_org=["2606:4700::1111"])
    transport = httpx.MockTransport(handle)
    await fetcher(resolver=names, transport=transport).fetch(f"https://{HOST}/a?b=c")
    (request,) = seen
    assert str(request.url) == "https://[2606:4700::1111]/a?b=c"
    assert request.headers["host"] == HOST
    assert request.extensions["sni_hostname"] == HOST


async def test_the_next_address_is_tried_where_one_takes_no_connection() -> None:
    """A host with an IPv6 address is reachable from a network without IPv6."""

    async def run() -> Fetched:
        async with site(a=answer(b"grass")) as running:
            closed = "127.0.0.2"  # nothing listens there
            names = Names(docs_example_org=[closed, "127.0.0.1"])
            patient = Fetcher(
                RagSettings(allowed_url_hosts=[HOST]),
                is_public=lambda address: address.is_loopback,
                resolver=names,
            )
            return await patient.fetch(running.url("/a"))

    assert (await run()).data == b"grass"


async def test_redirects_between_allowed_hosts_are_followed() -> None:
    """Relative and absolute; the final address is reported, and each host is looked up."""
    names = Names(**LOCAL)

    async def run() -> Fetched:
        async with site(
            a=redirect("b?x=1"),
            c=answer(b"grass"),
            **{"b?x=1": redirect("http://cdn.example.org:PORT/c")},
        ) as running:
            return await fetcher(HOST, "cdn.example.org", resolver=names).fetch(running.url("/a"))

    fetched = await run()
    assert fetched.data == b"grass"
    assert fetched.url.startswith("http://cdn.example.org:")
    assert names.asked == [HOST, HOST, "cdn.example.org"]


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("http://evil.org/", "not fetched from"),
        ("http://inside.example.org/", "not on the public internet"),
        ("http://127.0.0.1:PORT/c", "not fetched from"),
        ("file:///etc/passwd", "scheme"),
        ("http://u:p@docs.example.org:PORT/c", "user name"),
        ("http://docs.example.org:PORT@evil.org/", "user name"),
        ("//evil.org/c", "not fetched from"),
        ("http://docs.example.org:x/", "malformed"),
    ],
)
async def test_every_redirect_is_checked_again(location: str, message: str) -> None:
    """Host, scheme, credentials and address, as for the first URL.

    If this fails: an allowed host with an open redirect opens the whole network.
    """
    names = Names(docs_example_org=["127.0.0.1"], inside_example_org=["10.0.0.1"])

    async with site(a=redirect(location), c=answer(b"secret")) as running:
        allowed = fetcher(HOST, "inside.example.org", resolver=names)
        with pytest.raises(InvalidRequest, match=message):
            await allowed.fetch(running.url("/a"))
        assert running.requests == ["/a"]


async def test_redirects_end() -> None:
    """Five are followed, a sixth is not."""

    async def run() -> Site:
        async with site(a=redirect("/a")) as running:
            with pytest.raises(InvalidRequest, match="More than 5 redirects"):
                await fetcher().fetch(running.url("/a"))
            return running

    assert len((await run()).requests) == 6


@pytest.mark.parametrize(
    "found",
    [answer(b"x" * 2000), b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2000, answer(b"", length=10**9)],
    ids=["announced", "unannounced", "only announced"],
)
async def test_a_large_document_is_refused(found: bytes) -> None:
    """By what it announces or by what comes; the error names the setting."""

    async with site(a=found) as running:
        with pytest.raises(InvalidRequest, match=r"rag\.fetch_max_mib"):
            await fetcher(fetch_max_mib=1000 / 1024 / 1024).fetch(running.url("/a"))


async def test_a_document_of_the_largest_size_is_fetched() -> None:
    """The limit itself is allowed."""

    async def run() -> Fetched:
        async with site(a=answer(b"x" * 1024)) as running:
            return await fetcher(fetch_max_mib=1 / 1024).fetch(running.url("/a"))

    assert len((await run()).data) == 1024


async def test_a_slow_document_times_out() -> None:
    """The time limit is for the whole, so a trickle does not help."""

    async with site(a=None) as running:
        with pytest.raises(ProviderTimeout, match=r"0\.2 s"):
            await fetcher(fetch_timeout_seconds=0.2).fetch(running.url("/a"))


@pytest.mark.parametrize("status", ["404 Not Found", "403 Forbidden", "204 No Content"])
async def test_a_document_that_is_not_there_is_refused(status: str) -> None:
    """The status is named, and no error page is taken for the document."""

    async with site(a=answer(b"", status=status)) as running:
        with pytest.raises(InvalidRequest, match=status[:3]):
            await fetcher().fetch(running.url("/a"))


async def test_a_failing_host_is_unavailable() -> None:
    """A status of 5xx, no connection, no such name: it may work later."""

    async with site(a=answer(b"", status="503 Busy"), b=b"no http\r\n\r\n") as running:
        for path in ("/a", "/b"):
            with pytest.raises(Unavailable):
                await fetcher().fetch(running.url(path))
        port = running.port
    with pytest.raises(Unavailable):
        await fetcher().fetch(f"http://{HOST}:{port}/a")
    with pytest.raises(Unavailable):
        await fetcher(resolver=Names()).fetch(f"http://{HOST}/a")


async def test_compressed_answers_are_not_unpacked() -> None:
    """They are not asked for, and refused: a small body could unpack to a large one."""

    async def run() -> Site:
        async with site(a=answer(b"x", "Content-Encoding: gzip")) as running:
            with pytest.raises(InvalidRequest, match="compressed"):
                await fetcher().fetch(running.url("/a"))
            return running

    assert "accept-encoding: identity" in (await run()).heads[0].lower()


async def test_credentials_in_a_url_are_refused() -> None:
    """They would be stored with the chunks as their source."""
    with pytest.raises(InvalidRequest, match="user name"):
        await fetcher().fetch(f"http://user:password@{HOST}/")


async def test_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy, so the address that was checked is the one that is connected to."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    async def run() -> Fetched:
        async with site(a=answer(b"grass")) as running:
            return await fetcher().fetch(running.url("/a"))

    assert (await run()).data == b"grass"


async def test_no_url_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A document's address can hold a secret; above DEBUG no logger writes it."""
    caplog.set_level("INFO")

    async with site(a=answer(b"grass")) as running:
        await fetcher().fetch(running.url("/a"))
    assert caplog.records == []


async def test_the_system_resolves_names() -> None:
    """The default resolver returns each address once."""
    assert await resolve("127.0.0.1", 80) == ["127.0.0.1"]
