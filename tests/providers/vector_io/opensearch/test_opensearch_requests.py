"""remote::opensearch at the boundary of its driver: retries, TLS, users, signatures, refusals."""

from __future__ import annotations

import base64
import datetime
import http.server
import ipaddress
import json
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from corral.api.chunks import Chunk
from corral.api.errors import ConfigError, MissingDependency, ProviderError
from corral.providers.vector_io.opensearch.config import OpenSearchConfig
from corral.providers.vector_io.opensearch.provider import OpenSearchProvider, create

from ..engines import engine_of, scratch_home
from ..registrations import registration

Json = dict[str, Any]

LOGIN = {"user": "ann", "password": "secret"}

OPENSEARCH = {"number": "2.19.0", "distribution": "opensearch"}

COUNTED = {
    "hits": {"total": {"value": 3}},
    "aggregations": {"length": {"value": 6}},
    "timed_out": False,
    "_shards": {"failed": 0},
}


class Service(http.server.ThreadingHTTPServer):
    """A server that answers as the test says.

    Attributes:
        version: The version in the answer to `GET /`.
        answers: Statuses and bodies for searches, in this order; the last one is repeated.
        searches: The number of searches.
        shared: Bodies for the searches that share a request.
        headers: The headers of each request.
    """

    def __init__(self, handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        self.version: Json = OPENSEARCH
        self.answers: list[tuple[int, Json]] = [(200, COUNTED)]
        self.searches = 0
        self.shared: list[Json] = []
        self.headers: list[Message] = []
        super().__init__(("127.0.0.1", 0), handler)

    @property
    def address(self) -> str:
        """The host and port."""
        return f"127.0.0.1:{self.server_address[1]}"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Serve in a thread."""
        thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield
        finally:
            self.shutdown()
            thread.join()
            self.server_close()


class Request(http.server.BaseHTTPRequestHandler):
    """Answers searches from the list, and everything else with the version."""

    protocol_version = "HTTP/1.1"
    server: Service

    def do_GET(self) -> None:
        """Answer one request."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.headers.append(self.headers)
        self.reply(*self.answer(body))

    do_PUT = do_POST = do_DELETE = do_GET

    def answer(self, body: bytes) -> tuple[int, bytes]:
        """Return the status and the body of the answer."""
        if "/_msearch" in self.path:
            return 200, json.dumps({"responses": self.server.shared}).encode()
        if "/_search" not in self.path:
            return 200, json.dumps({"version": self.server.version}).encode()
        answers = self.server.answers
        status, reply = answers[min(self.server.searches, len(answers) - 1)]
        self.server.searches += 1
        return status, json.dumps(reply).encode()

    def reply(self, status: int, body: bytes) -> None:
        """Send an answer."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def service() -> Iterator[Service]:
    """A server of the test's own."""
    server = Service(Request)
    with server.running():
        yield server


def provider_of(service: Service, **settings: Any) -> OpenSearchProvider:
    """Return a provider that asks a service."""
    url = {"url": f"http://{service.address}"}
    return create("o1", OpenSearchConfig.model_validate(url | settings), scratch_home())


# --- retries --------------------------------------------------------------------------------------


def failure(kind: str, reason: str = "zebra") -> Json:
    """Return the body of an error."""
    cause = {"type": kind, "reason": reason}
    whole = {"type": "search_phase_execution_exception", "reason": "all shards failed"}
    return {"error": {**whole, "root_cause": [cause]}}


GONE = failure("node_not_connected_exception", "[node-2][127.0.0.1:9300] Node not connected")


@pytest.mark.parametrize(
    "passing",
    [
        (500, GONE),
        (500, failure("node_disconnected_exception")),
        (503, failure("no_shard_available_action_exception")),
        (429, failure("rejected_execution_exception")),
    ],
)
async def test_a_search_is_sent_again_after_a_passing_error(
    service: Service, passing: tuple[int, Json]
) -> None:
    """The node of a shard has just gone, no copy is ready yet, or the queue is full: the search is
    sent again, and the user sees no error.

    If this fails: each restart of a node fails the searches of a second.
    """
    service.answers = [passing, passing, (200, COUNTED)]
    provider = provider_of(service)
    index = await provider.open_index(registration("o1"), create=True)
    assert await index.count() == 3
    assert service.searches == 3
    await index.close()


@pytest.mark.parametrize(
    ("status", "kind"),
    [(500, "null_pointer_exception"), (400, "query_shard_exception")],
)
async def test_a_search_is_not_sent_again_after_another_error(
    service: Service, status: int, kind: str
) -> None:
    """An error of the server or of the query is raised at once, without the server's text.

    If this fails: a defect takes three times as long, or its message quotes a user's text.
    """
    service.answers = [(status, failure(kind, "Node not connected"))]
    provider = provider_of(service)
    index = await provider.open_index(registration("o1"), create=True)
    with pytest.raises(ProviderError, match=f"o1: .*{status}") as caught:
        await index.count()
    assert "Node" not in str(caught.value)
    assert not caught.value.retryable
    assert service.searches == 1
    await index.close()


async def test_a_count_that_failed_among_others_is_sent_again(service: Service) -> None:
    """The words of a query are counted by one request. If a count failed in it, each is sent alone.

    If this fails: a passing error of one count is taken for its number, or raised at once.
    """
    service.shared = [COUNTED, {"status": 500, **GONE}]
    service.answers = [(500, GONE), (200, COUNTED)]
    provider = provider_of(service)
    index = await provider.open_index(registration("o1"), create=True)
    engine = engine_of(index)
    counted = await engine.term_statistics("zebra lion", False)
    assert (counted.holding, service.searches) == ({"lion": 3, "zebra": 3}, 4)
    await index.close()


# --- TLS, users and signatures --------------------------------------------------------------------


class Proxied(Request):
    """Passes requests on, if they have the right user and password."""

    target = ""

    def answer(self, body: bytes) -> tuple[int, bytes]:
        """Return the answer of the target, or 401."""
        login = base64.b64encode(":".join(LOGIN.values()).encode()).decode()
        if self.headers.get("Authorization") != f"Basic {login}":
            return 401, b'{"error": "Unauthorized"}'
        kind = {"Content-Type": self.headers.get("Content-Type", "application/json")}
        url = f"{self.target}{self.path}"
        with httpx.Client(trust_env=False, timeout=30) as client:
            answer = client.request(self.command, url, content=body, headers=kind)
        return answer.status_code, answer.content


def authority(folder: Path) -> Path:
    """Write a key, and a certificate for 127.0.0.1 that it signs itself; return the file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir()
    pem = serialization.Encoding.PEM
    private = serialization.PrivateFormat.PKCS8
    (folder / "key.pem").write_bytes(key.private_bytes(pem, private, serialization.NoEncryption()))
    path = folder / "certificate.pem"
    path.write_bytes(certificate.public_bytes(pem))
    return path


@pytest.fixture
def secured(config: OpenSearchConfig, tmp_path: Path) -> Iterator[Json]:
    """The shared server behind TLS and a password; yields the settings for it."""
    certificate = authority(tmp_path / "right")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    server = Service(type("Secured", (Proxied,), {"target": config.url}))
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    with server.running():
        yield {
            "url": f"https://{server.address}",
            "ca_file": certificate,
            "index_prefix": config.index_prefix,
            "timeout_seconds": 30,
            **LOGIN,
        }


async def test_tls_with_an_authority_and_a_password(secured: Json) -> None:
    """Writes and searches of every mode pass TLS and the password.

    If this fails: a cluster with the security plugin cannot be used.
    """
    provider = create("o1", OpenSearchConfig.model_validate(secured), scratch_home())
    index = await provider.open_index(registration("o1"), create=True)
    await index.add_chunks([Chunk(chunk_id="a", content="zebra")], [[1.0, 0.0]])
    for mode in ("vector", "keyword", "hybrid"):
        [hit] = (await index.query([1, 0], "zebra", k=1, mode=mode)).hits
        assert hit.chunk.content == "zebra"
    await index.delete()


async def test_a_wrong_authority_or_password_is_named(secured: Json, tmp_path: Path) -> None:
    """The message says what is wrong, at the first request, and is not sent again.

    If this fails: an operator reads that the server cannot be reached, and looks for a network.
    """
    other = authority(tmp_path / "wrong")
    unreadable = tmp_path / "text.pem"
    unreadable.write_text("no certificate")
    for settings, message in (
        ({"ca_file": other}, "certificate"),
        ({"ca_file": None}, "certificate"),
        ({"password": "other"}, "user or the signature"),
        ({"ca_file": tmp_path / "absent.pem"}, "ca_file"),
        ({"ca_file": unreadable}, "ca_file"),
    ):
        config = OpenSearchConfig.model_validate(secured | settings)
        provider = create("o1", config, scratch_home())
        with pytest.raises((ConfigError, ProviderError), match=message) as caught:
            await provider.open_index(registration("o1"), create=True)
        assert not caught.value.retryable
        health = await provider.health()
        assert message in health.message
        await provider.close()


async def test_users_and_signatures_reach_the_server(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request has a user's name and password, or Amazon's signature for the region, which
    covers the time, the host and the body.

    If this fails: a cluster with the security plugin, or a domain of Amazon's, refuses everything.
    """
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "example")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session")
    for settings, expected in (
        (LOGIN, "Basic YW5uOnNlY3JldA=="),
        ({"aws_region": "eu-west-1"}, "AWS4-HMAC-SHA256 Credential=AKEXAMPLE/"),
    ):
        service.headers.clear()
        provider = provider_of(service, **settings)
        index = await provider.open_index(registration("o1"), create=True)
        assert await index.count() == 3
        await index.close()
        assert len(service.headers) == 3  # the version, the new index, the search
        assert all(one["Authorization"].startswith(expected) for one in service.headers)
    signatures = [one["Authorization"] for one in service.headers]
    assert all("/eu-west-1/es/aws4_request" in one for one in signatures)
    assert all("host;" in one and "x-amz-date" in one for one in signatures)
    assert len({one.split("Signature=")[1] for one in signatures}) == 3
    assert all(one["X-Amz-Security-Token"] == "session" for one in service.headers)


async def test_signing_needs_botocore(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the message has the command that installs it."""
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    provider = provider_of(service, aws_region="eu-west-1")
    with pytest.raises(MissingDependency, match="botocore") as caught:
        await provider.open_index(registration("o1"), create=True)
    assert "opensearch-aws" in caught.value.command
    await provider.close()


# --- other servers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ({"number": "8.19.2", "build_flavor": "default"}, r"Elasticsearch 8\.19\.2"),
        ({"number": "9.1.0", "build_flavor": "default"}, r"Elasticsearch 9\.1\.0"),
        ({"number": "7.10.2", "build_flavor": "oss"}, r"Elasticsearch 7\.10\.2"),
        ({}, "not OpenSearch"),
        ({"number": "2.5.0", "distribution": "opensearch"}, r"2\.5\.0 is too old"),
    ],
)
async def test_the_server_must_be_opensearch(service: Service, version: Json, message: str) -> None:
    """Elasticsearch, another service, and an OpenSearch that is too old are refused by name, before
    anything is created.

    If this fails: the first error is about an unknown type of field.
    """
    service.version = version
    provider = provider_of(service)
    with pytest.raises(ConfigError, match=message):
        await provider.open_index(registration("o1"), create=True)
    assert len(service.headers) == 1
    await provider.close()
