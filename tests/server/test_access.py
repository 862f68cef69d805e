"""The gate: who is let in, and what decides about it."""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from corral.api.errors import ConfigError
from corral.api.principal import Role
from corral.providers.base.config import RunConfig, ServerSettings
from corral.server.serving import MAX_HEADER_BYTES, serve

from .harness import InProcess, ServerProcess, message_of, run_config
from .secured import Holder, holder, keys_of, nobody

PUBLIC = ["/", "/docs", "/docs/assets/swagger-ui.css", "/openapi.json", "/v1/health"]
FORMS = [
    None,
    "",
    "Bearer",
    "Bearer ",
    "Basic YWRtaW46YWRtaW4=",
    "Token {key}",
    "{key}",
    "Bearer {key} {key}",
    "Bearer {key},",
    "Bearer {key}x",
    "Bearer\t{key}",
]


def settings(**server: Any) -> RunConfig:
    """Return a configuration with some settings of `server`."""
    config = run_config()
    config.server = ServerSettings.model_validate({"port": 0, **server})
    return config


def test_the_first_key_switches_authentication_on(app: InProcess) -> None:
    """Before it everyone is the operator; from its creation on, every request needs a key.

    If this fails: a server whose operator has created keys still answers to everyone.
    """
    assert nobody(app).status("GET", "/v1/vector-dbs") == 200
    ann = holder(app, "ann")
    refused = nobody(app).send("GET", "/v1/vector-dbs")
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == 'Bearer realm="corral"'
    assert "Authorization: Bearer KEY" in message_of(refused)
    assert ann.status("GET", "/v1/vector-dbs") == 200


def test_revoking_the_last_key_opens_nothing(app: InProcess) -> None:
    """A revoked key is refused at the next request, and so is everyone without one."""
    ann = holder(app, "ann")
    assert ann.status("GET", "/v1/vector-dbs") == 200
    app.run(lambda: keys_of(app).revoke(ann.key_id))
    refused = ann.send("GET", "/v1/vector-dbs")
    assert (refused.status_code, "is revoked" in message_of(refused)) == (401, True)
    assert nobody(app).status("GET", "/v1/vector-dbs") == 401


@pytest.mark.parametrize("form", FORMS)
def test_only_a_bearer_key_is_a_key(app: InProcess, form: str | None) -> None:
    """Another scheme, a key with something around it, an empty header: 401 for each."""
    secret = holder(app, "ann", Role.ADMIN).secret
    given = {} if form is None else {"authorization": form.format(key=secret)}
    assert nobody(app).send("GET", "/v1/vector-dbs", headers=given).status_code == 401


def test_a_key_elsewhere_is_no_key(app: InProcess) -> None:
    """In the query string, a cookie, X-API-Key, or one of two Authorization headers: 401.

    If this fails: keys end up in access logs and in the history of browsers.
    """
    secret = holder(app, "ann", Role.ADMIN).secret
    one = ("authorization", f"Bearer {secret}")
    for headers in ([("x-api-key", secret)], [("cookie", f"key={secret}")], [one, one]):
        assert app.send("GET", "/v1/vector-dbs", headers=headers).status_code == 401
    asked = f"/v1/vector-dbs?key={secret}&api_key={secret}&access_token={secret}"
    assert nobody(app).status("GET", asked) == 401


def test_what_a_proxy_says_changes_nothing(app: InProcess) -> None:
    """No header but Authorization makes anybody anyone (CVE-2025-64513, -49468).

    If this fails: a header that everyone can send stands for a check.
    """
    reader = holder(app, "ann")
    claims = {
        "x-forwarded-for": "127.0.0.1",
        "x-real-ip": "127.0.0.1",
        "forwarded": "for=127.0.0.1;host=localhost",
        "x-forwarded-host": "localhost",
        "x-forwarded-user": "admin",
        "x-remote-user": "admin",
        "x-original-url": "/v1/health",
        "x-rewrite-url": "/v1/health",
        "x-http-method-override": "GET",
        "x-corral-principal": "admin",
        "x-corral-tenant": "acme",
        "host": "localhost",
    }
    assert nobody(app).send("GET", "/v1/vector-dbs", headers=claims).status_code == 401
    assert reader.send("GET", "/v1/orphans", headers=claims).status_code == 403
    assert reader.send("DELETE", "/v1/vector-dbs/db", headers=claims).status_code == 403


def test_nothing_is_read_of_a_request_that_is_refused(app: InProcess) -> None:
    """Without a key a malformed body is a 401, with too small a role a 403, and never a 400.

    If this fails: strangers make the server parse and look up what they send.
    """
    reader = holder(app, "ann")
    for path in ("/v1/vector-io/insert", "/v1/vector-dbs", "/v1/vector-dbs/x/copy"):
        for who, status in ((nobody(app), 401), (reader, 403)):
            sent = {"content-type": "application/json"}
            assert who.send("POST", path, headers=sent).status_code == status
            assert who.status("POST", path, {"no": "such body"}) == status


def test_every_path_is_behind_the_gate(app: InProcess) -> None:
    """What exists, what does not, other spellings and other methods: 401 but for the public pages.

    If this fails: an alias of a route, or a mounted application, answers without a key.
    """
    holder(app, "ann")
    for path in PUBLIC:
        assert nobody(app).status("GET", path) == 200, path
        assert nobody(app).status("POST", path, {}) == 401, path
    for path in (
        "/v1/vector-dbs/",
        "//v1/vector-dbs",
        "/v1//health",
        "/v1/health/",
        "/v1/health/../vector-dbs",
        "/v1/health%2F..%2Fvector-dbs",
        "/V1/HEALTH",
        "/docs/assets/../../v1/vector-dbs",
        "/docs/assets/%2e%2e%2f%2e%2e%2fv1%2fvector-dbs",
        "/openapi.json/",
        "/metrics",
        "/nowhere",
    ):
        assert nobody(app).status("GET", path) in (401, 404), path
        assert "vector" not in nobody(app).send("GET", path).text, path
    assert nobody(app).status("GET", "/nowhere") == 401


def test_auth_none_is_everyone(tmp_path: Path) -> None:
    """Written by hand, it wins over keys: they are not looked at."""
    with InProcess(tmp_path, settings(auth="none")) as app:
        holder(app, "ann")
        assert nobody(app).status("GET", "/v1/orphans") == 200
        assert Holder(app, "wrong").status("GET", "/v1/orphans") == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "corral.example.org", ""])
def test_a_server_that_others_reach_does_not_start_open(tmp_path: Path, host: str) -> None:
    """On an address that is not loopback it refuses to start, and says the three ways out.

    If this fails: `--host 0.0.0.0` gives every document to the network.
    """
    with pytest.raises(ConfigError) as refused:
        serve(settings(host=host), tmp_path)
    told = str(refused.value)
    assert all(way in told for way in ("corral keys create", "server.auth.oidc", "auth: none"))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_may_be_open(tmp_path: Path, host: str) -> None:
    """Without any configuration a laptop's server starts."""
    with InProcess(tmp_path, settings(host=host)) as app:
        app.run(app.app.state.access.callers.check_address)


def test_keys_or_none_let_it_start_anywhere(tmp_path: Path) -> None:
    """A key that exists, or `none` by hand, is a decision of the operator."""
    with InProcess(tmp_path, settings(host="0.0.0.0", auth="none")) as app:
        app.run(app.app.state.access.callers.check_address)
    with InProcess(tmp_path, settings(host="0.0.0.0")) as app:
        with pytest.raises(ConfigError):
            app.run(app.app.state.access.callers.check_address)
        holder(app, "ann")
        app.run(app.app.state.access.callers.check_address)


def test_an_open_app_under_another_server_answers_loopback_only(app: InProcess) -> None:
    """An app that is not started by `corral serve` still refuses what arrives from elsewhere."""
    assert app.send("GET", "http://10.1.2.3:8321/v1/vector-dbs").status_code == 403
    assert app.send("GET", "http://127.0.0.1:8321/v1/vector-dbs").status_code == 200


def test_headers_are_bounded(tmp_path: Path) -> None:
    """A served process refuses headers beyond its bound, while they arrive, and goes on.

    If this fails: one connection, before any key is asked for, takes all the memory.
    """
    server = ServerProcess(tmp_path)
    try:
        port = int(server.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(b"GET /v1/health HTTP/1.1\r\nhost: localhost\r\n")
            with suppress(ConnectionError):
                for number in range(8 * MAX_HEADER_BYTES // 1024):
                    connection.sendall(b"x-%d: %s\r\n" % (number, b"a" * 1024))
            answer = b""
            with suppress(ConnectionError):
                answer = connection.recv(1024)
        assert not answer or answer.startswith(b"HTTP/1.1 4")
        assert httpx.get(f"{server.url}/v1/health").status_code == 200
    finally:
        server.stop()


@pytest.mark.parametrize(
    "auth",
    [
        "off",
        {},
        {"oidc": {"issuer": "http://sso.example.org", "audience": "corral"}},
        {"oidc": {"issuer": "https://a", "audience": "c", "algorithms": ["none"]}},
        {"oidc": {"issuer": "https://a", "audience": "c", "algorithms": ["HS256"]}},
        {"oidc": {"issuer": "https://a", "audience": ""}},
        {"oidc": {"issuer": "https://a", "audience": "c", "clock_skew_seconds": 3600}},
    ],
)
def test_a_careless_setting_is_refused(auth: Any) -> None:
    """An issuer without TLS, no audience, shared secrets, an unknown word: none is a setting."""
    with pytest.raises(ValidationError):
        ServerSettings.model_validate({"auth": auth})


def test_every_reply_carries_the_security_headers(app: InProcess) -> None:
    """Answers, refusals and pages: never sniffed, framed or kept by a cache; pages keep their own.

    If this fails: a browser or a proxy between keeps documents of one user for another.
    """
    holder(app, "ann")
    for path in (*PUBLIC, "/v1/vector-dbs", "/nowhere"):
        headers = nobody(app).send("GET", path).headers
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["x-frame-options"] == "DENY", path
        assert headers["referrer-policy"] == "no-referrer", path
        assert "frame-ancestors 'none'" in headers["content-security-policy"], path
        if "assets" not in path:
            assert headers["cache-control"] == "no-store", path
        assert not any(re.match("access-control-", name) for name in headers), path
