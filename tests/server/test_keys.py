"""API keys over HTTP: the operator creates, lists and revokes them, and nobody else."""

from __future__ import annotations

import pytest

from corral.api.principal import Role

from .harness import InProcess, message_of
from .secured import Holder, holder


def test_a_key_is_shown_once_works_and_is_revoked(app: InProcess) -> None:
    """The reply to its creation has the secret, the list has not, and after its end it is refused.

    If this fails: a secret can be read later, or a revoked key still opens the server.
    """
    admin = holder(app, "root", Role.ADMIN)
    asked = {"user": "ann", "role": "writer", "tenant": "acme", "groups": ["b", "a"]}
    made = admin.ok("POST", "/v1/keys", {**asked, "expires_in_days": 1})
    ann = Holder(app, made["key"])
    who = ann.ok("GET", "/v1/whoami")
    assert who == {**asked, "groups": ["a", "b"], "key_id": made["key_id"]}
    assert made["expires_at"] == made["created_at"] + 86_400
    listed = admin.send("GET", "/v1/keys")
    assert made["key"] not in listed.text
    assert [one["user"] for one in listed.json()["data"]] == ["root", "ann"]
    ended = admin.ok("POST", f"/v1/keys/{made['key_id']}/revoke")
    assert ended["state"] == "revoked"
    assert ann.status("GET", "/v1/whoami") == 401
    assert admin.status("POST", f"/v1/keys/{made['key_id']}/revoke") == 409
    assert admin.status("POST", "/v1/keys/none/revoke") == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "user"),
        ({"user": ""}, "user"),
        ({"user": "a\nb"}, "user"),
        ({"user": "a", "groups": [""]}, "user"),
        ({"user": "a", "role": "king"}, "role"),
        ({"user": "a", "expires_in_days": 0}, "expires_in_days"),
        ({"user": "a", "secret": "x"}, "secret"),
    ],
)
def test_a_malformed_key_is_refused(app: InProcess, body: dict[str, object], field: str) -> None:
    """400 names the field, and no key is made: the server still needs none."""
    refused = app.send("POST", "/v1/keys", body)
    assert refused.status_code == 400
    assert message_of(refused)
    assert field in refused.json()["error"]["param"]
    assert app.ok("GET", "/v1/keys") == {"data": []}


@pytest.mark.parametrize(
    ("role", "tenant"), [(Role.READER, ""), (Role.WRITER, ""), (Role.ADMIN, "acme")]
)
def test_only_the_operator_has_the_keys(app: InProcess, role: Role, tenant: str) -> None:
    """A lower role, or an admin of a tenant, gets a 403 and changes nothing."""
    operator, other = holder(app, "root", Role.ADMIN), holder(app, "o", role, tenant=tenant)
    assert other.status("GET", "/v1/keys") == 403
    assert other.status("POST", "/v1/keys", {"user": "x", "role": "admin"}) == 403
    assert other.status("POST", f"/v1/keys/{operator.key_id}/revoke") == 403
    assert len(operator.ok("GET", "/v1/keys")["data"]) == 2
