"""Tokens of an issuer: a real one on loopback, with keys that it rotates."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, Key, OctKey, RSAKey

from corral.api.errors import Forbidden, Unauthenticated, Unavailable
from corral.api.principal import Principal, Role
from corral.providers.base.config import ServerSettings
from corral.providers.base.server_config import OidcAuth
from corral.server.access.oidc import AGAIN_SECONDS, FRESH_SECONDS, STALE_SECONDS, Issuer

from .harness import InProcess, run_config
from .secured import Holder, holder

RSA = RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig"})
EC = ECKey.generate_key("P-256", {"kid": "ec", "use": "sig", "alg": "ES256"})


class Sso:
    """An issuer: its documents over HTTP, and tokens with whatever claims a test wants."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys: list[Key] = [RSA, EC]
        self.reads = 0
        self.is_down = False
        self.says_issuer = url
        self.now = time.time()

    def clock(self) -> float:
        """Return the time that the server under test believes in."""
        return self.now

    def document(self, path: str) -> dict[str, Any] | None:
        """Return what is at a path; None while it is down, and where there is nothing."""
        if self.is_down:
            return None
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.says_issuer, "jwks_uri": f"{self.url}/keys"}
        if path == "/keys":
            self.reads += 1
            return {"keys": [key.as_dict(private=False) for key in self.keys]}
        return None

    def claims(self, **others: Any) -> dict[str, Any]:
        """Return the claims of a good token, others in their place; None leaves one out."""
        claims = {
            "iss": self.url,
            "aud": "corral",
            "sub": "ann",
            "exp": int(self.now) + 600,
            "groups": ["sales"],
            **others,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, key: Key = RSA, alg: str = "RS256", kid: str | None = "", **others: Any) -> str:
        """Return a signed token; `kid` is the key's own unless given, None: none."""
        header: dict[str, Any] = {"alg": alg, "kid": key.kid if kid == "" else kid}
        header = {name: value for name, value in header.items() if value is not None}
        return jwt.encode(header, self.claims(**others), key, algorithms=[alg])

    def settings(self, **others: Any) -> OidcAuth:
        """Return the server's settings for this issuer."""
        return OidcAuth.model_validate({"issuer": self.url, "audience": "corral", **others})


@contextmanager
def served() -> Iterator[Sso]:
    """Run an issuer on a free port of 127.0.0.1."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = running.document(self.path)
            body = json.dumps(found).encode()
            self.send_response(503 if found is None else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running = Sso(f"http://127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def sso() -> Iterator[Sso]:
    """Yield an issuer."""
    with served() as running:
        yield running


def issuer(sso: Sso, **settings: Any) -> Issuer:
    """Return what turns the issuer's tokens into principals."""
    return Issuer(sso.settings(**settings), sso.clock)


async def test_a_token_says_who_somebody_is(sso: Sso) -> None:
    """User, groups, tenant and role come from the claims that the settings name.

    If this fails: somebody gets another's documents.
    """
    known = issuer(
        sso,
        groups_claim="realm_access.roles",
        tenant_claim="https://example.org/org",
        user_claim="email",
        roles={"writers": "writer", "chiefs": "admin", "guests": "reader"},
    )
    claims: dict[str, Any] = {
        "email": "ann@example.org",
        "realm_access": {"roles": ["guests", "writers"]},
        "https://example.org/org": "acme",
    }
    groups = frozenset({"guests", "writers"})
    wanted = Principal("acme", "ann@example.org", groups, Role.WRITER)
    assert await known.principal(sso.token(**claims)) == wanted
    assert await known.principal(sso.token(EC, "ES256", **claims)) == wanted
    await known.close()


def forged(sso: Sso) -> dict[str, str]:
    """Return tokens that must not be believed, by what is wrong with them."""
    good = sso.token()
    head, body, signature = good.split(".")
    stranger = RSAKey.generate_key(2048, {"kid": "rsa"})
    public = RSA.as_pem(private=False)
    now, header = int(sso.now), {"alg": "RS256", "kid": "rsa"}

    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    admin = part(sso.claims(sub="root", groups=["admins"]))

    def mac(secret: bytes, header: dict[str, Any]) -> str:
        signed = f"{part(header)}.{admin}"
        made = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
        return f"{signed}.{base64.urlsafe_b64encode(made).rstrip(b'=').decode()}"

    return {
        "alg none": f"{part({'alg': 'none'})}.{admin}.",
        "alg None, key id": f"{part({'alg': 'None', 'kid': 'rsa'})}.{admin}.",
        "alg none, old signature": f"{part({'alg': 'none', 'kid': 'rsa'})}.{admin}.{signature}",
        "public key as secret": mac(public, {"alg": "HS256", "kid": "rsa"}),
        "another's key of the same id": sso.token(stranger),
        "unknown key": sso.token(kid="other"),
        "no key id, two keys": sso.token(EC, "ES256", kid=None),
        "key of another algorithm": sso.token(kid="ec"),
        "algorithm not accepted": sso.token(alg="RS512"),
        "other claims, same signature": f"{head}.{admin}.{signature}",
        "no signature": f"{head}.{body}.",
        "cut": good[:-4],
        "another issuer": sso.token(iss="https://evil.example"),
        "issuer with a slash": sso.token(iss=sso.url + "/"),
        "no issuer": sso.token(iss=None),
        "another audience": sso.token(aud="other"),
        "audience in a part": sso.token(aud="corral-admin"),
        "no audience": sso.token(aud=None),
        "expired": sso.token(exp=now - 61),
        "never expires": sso.token(exp=None),
        "expiry is text": sso.token(exp="tomorrow"),
        "expiry is true": sso.token(exp=True),
        "not yet": sso.token(nbf=now + 120),
        "issued tomorrow": sso.token(iat=now + 86_400),
        "no user": sso.token(sub=None),
        "empty user": sso.token(sub=""),
        "user is a list": sso.token(sub=["ann"]),
        "groups are numbers": sso.token(groups=[1]),
        "an empty group": sso.token(groups=[""]),
        "a group with a line break": sso.token(groups=["sales\n"]),
        "a user with an invisible character": sso.token(sub="ann\u200b"),
        "everybody": sso.token(groups=["*"]),
        "too many groups": sso.token(groups=[f"g{n}" for n in range(600)]),
        "embedded key": jwt.encode(
            {"alg": "RS256", "kid": "x", "jwk": stranger.as_dict(private=False)},
            sso.claims(),
            stranger,
            algorithms=["RS256"],
        ),
        "critical header": f"{part({**header, 'crit': ['x']})}.{body}.{signature}",
        "a number": "1",
        "dots": "..",
        "deep": "[" * 10_000,
        "long": "a" * 100_000,
        "no text": "\udc80",
    }


async def test_no_forged_token_is_believed(sso: Sso) -> None:
    """Each of some thirty ways to get it wrong is refused, and a good token among them is not.

    If this fails: the name of the case says what anybody can make a token from.
    """
    known = issuer(sso)
    for name, token in forged(sso).items():
        with pytest.raises(Unauthenticated) as refused:
            pytest.fail(f"believed: {name}, {await known.principal(token)}")
        assert len(token) < 3 or token not in str(refused.value), name
    assert (await known.principal(sso.token())).user == "ann"
    await known.close()


async def test_a_token_never_falls_into_the_default_tenant(sso: Sso) -> None:
    """With a tenant claim, a token in which it is missing, empty or no text is refused.

    If this fails: such a token is in the operator's tenant.
    """
    known = issuer(sso, tenant_claim="org")
    for org in (None, "", 7, ["acme"], {"name": "acme"}, "*", "a\0b", "acme ", "\uff0a"):
        with pytest.raises(Unauthenticated):
            await known.principal(sso.token(org=org))
    assert (await known.principal(sso.token(org="acme"))).tenant == "acme"
    await known.close()


async def test_only_configured_groups_give_a_role(sso: Sso) -> None:
    """A claim `role` of the token's own means nothing; without a group, the default counts.

    If this fails: whoever can write a claim becomes an admin.
    """
    known = issuer(sso, roles={"chiefs": "admin"})
    claims: dict[str, Any] = {"role": "admin", "roles": ["admin"], "groups": ["admin", "writer"]}
    assert (await known.principal(sso.token(**claims))).role is Role.READER
    assert (await known.principal(sso.token(groups=None))).role is Role.READER
    assert (await known.principal(sso.token(groups="chiefs"))).role is Role.ADMIN
    await known.close()
    strict = issuer(sso, roles={"chiefs": "admin"}, default_role=None)
    with pytest.raises(Forbidden, match="No group"):
        await strict.principal(sso.token())
    await strict.close()


async def test_clocks_may_differ_a_little(sso: Sso) -> None:
    """`clock_skew_seconds` is allowed in both directions, and not a second more."""
    known, now = issuer(sso, clock_skew_seconds=30), int(sso.now)
    await known.principal(sso.token(exp=now - 28, nbf=now + 28))
    for wrong in (sso.token(exp=now - 32), sso.token(nbf=now + 32)):
        with pytest.raises(Unauthenticated):
            await known.principal(wrong)
    await known.close()


async def test_keys_rotate(sso: Sso) -> None:
    """A new key is found when a token names it; a withdrawn one is refused once keys are stale.

    If this fails: a rotation locks everyone out, or a stolen key of the issuer works for ever.
    """
    known = issuer(sso)
    await known.principal(sso.token())
    new = RSAKey.generate_key(2048, {"kid": "new"})
    sso.keys = [new]
    sso.now += AGAIN_SECONDS
    assert (await known.principal(sso.token(new))).user == "ann"
    sso.keys = []
    sso.now += FRESH_SECONDS
    sso.keys = [EC]
    with pytest.raises(Unauthenticated):
        await known.principal(sso.token(new))
    assert sso.reads == 3
    await known.close()


async def test_made_up_keys_do_not_burden_the_issuer(sso: Sso) -> None:
    """A hundred tokens that name unknown keys cost one reading of the issuer's keys."""
    known = issuer(sso)
    for number in range(100):
        with pytest.raises(Unauthenticated):
            await known.principal(sso.token(kid=f"made-up-{number}"))
    assert sso.reads == 1
    await known.close()


async def test_an_issuer_that_is_down(sso: Sso) -> None:
    """Known keys go on for an hour; after that, and at first, it is a 503 and no open door.

    If this fails: an outage of the issuer is one of this server, or lets anybody in.
    """
    known = issuer(sso)
    sso.is_down = True
    with pytest.raises(Unavailable):
        await known.principal(sso.token())
    sso.is_down = False
    sso.now += AGAIN_SECONDS
    await known.principal(sso.token())
    sso.is_down = True
    sso.now += STALE_SECONDS - 1
    await known.principal(sso.token())
    sso.now += AGAIN_SECONDS
    with pytest.raises(Unavailable):
        await known.principal(sso.token())
    await known.close()


async def test_another_issuers_document_is_not_believed(sso: Sso) -> None:
    """The discovery document must name the configured issuer."""
    sso.says_issuer = "https://evil.example"
    known = issuer(sso)
    with pytest.raises(Unavailable):
        await known.principal(sso.token())
    await known.close()
    given = issuer(sso, jwks_url=f"{sso.url}/keys")
    assert (await given.principal(sso.token())).user == "ann"
    await given.close()


async def test_a_secret_among_the_issuers_keys_is_not_used(sso: Sso) -> None:
    """A symmetric key that an issuer publishes by mistake signs nothing here."""
    secret = OctKey.generate_key(256, {"kid": "shared"})
    sso.keys = [RSA, secret]
    known = issuer(sso)
    token = jwt.encode(
        {"alg": "HS256", "kid": "shared"}, sso.claims(), secret, algorithms=["HS256"]
    )
    with pytest.raises(Unauthenticated):
        await known.principal(token)
    await known.close()


def test_a_server_takes_tokens_and_keys(sso: Sso, tmp_path: Path) -> None:
    """With an issuer nobody gets in without either; each finds what its tenant has.

    If this fails: the setting is read and the requests are not checked.
    """
    config = run_config()
    oidc = {**sso.settings(tenant_claim="org", roles={"sales": "writer"}).model_dump()}
    config.server = ServerSettings.model_validate({"port": 0, "auth": {"oidc": oidc}})
    sso.now = time.time()
    with InProcess(tmp_path, config) as app:
        assert Holder(app, None).status("GET", "/v1/vector-dbs") == 401
        assert Holder(app, "junk").status("GET", "/v1/vector-dbs") == 401
        ann, bob = Holder(app, sso.token(org="acme")), Holder(app, sso.token(org="globex"))
        ann.register("notes")
        assert [db["identifier"] for db in ann.ok("GET", "/v1/vector-dbs")["data"]] == ["notes"]
        assert bob.ok("GET", "/v1/vector-dbs")["data"] == []
        assert bob.status("GET", "/v1/orphans") == 403
        assert holder(app, "op", Role.ADMIN).status("GET", "/v1/orphans") == 200
