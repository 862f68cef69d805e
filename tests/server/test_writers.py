"""What a writer does with a vector DB as a whole, and what it leaves to an admin."""

from __future__ import annotations

from typing import Any

import pytest

from corral.api.principal import Role

from .harness import InProcess, message_of
from .secured import Holder, holder

ACME: dict[str, Any] = {"tenant": "acme"}
EXPIRY = {"anchor": "last_active_at", "days": 1}


@pytest.fixture
def admin(app: InProcess) -> Holder:
    """An admin of a tenant, who has a vector DB `db`."""
    made = holder(app, "cem", Role.ADMIN, **ACME)
    made.register()
    return made


@pytest.fixture
def ann(app: InProcess, admin: Holder) -> Holder:
    """A writer of the same tenant."""
    return holder(app, "ann", Role.WRITER, groups=["sales"], **ACME)


def test_a_writer_does_not_set_when_a_vector_db_is_deleted(admin: Holder, ann: Holder) -> None:
    """A writer changes a store, but not its expiry; it gives one to a store that it creates.

    If this fails: who may not delete a vector DB has the sweep do it.
    """
    path = "/v1/vector_stores/db"
    refused = ann.send("POST", path, {"name": "mine", "expires_after": EXPIRY})
    assert (refused.status_code, "admin" in message_of(refused)) == (403, True)
    assert admin.ok("GET", path)["name"] != "mine"
    assert ann.ok("POST", path, {"name": "ours", "expires_after": None})["name"] == "ours"
    assert admin.ok("POST", path, {"expires_after": EXPIRY})["expires_after"] == EXPIRY
    own = ann.ok("POST", "/v1/vector_stores", {"expires_after": EXPIRY})
    assert own["expires_after"] == EXPIRY


@pytest.mark.parametrize("acl", [["group:hr", "group:sales"], ["user:hal"], []])
def test_a_default_acl_names_tokens_that_its_maker_holds(
    admin: Holder, ann: Holder, acl: list[str]
) -> None:
    """A writer registers with its own tokens, an admin with any; what exists is returned."""
    body = {"vector_db_id": "new", "embedding_model": "hashing", "default_acl": acl}
    assert ann.status("POST", "/v1/vector-dbs", body) == 403
    assert admin.status("GET", "/v1/vector-dbs/new") == 400
    assert ann.register("own", default_acl=["group:sales"])["default_acl"] == ["group:sales"]
    admin.register("new", default_acl=acl)
    assert ann.status("POST", "/v1/vector-dbs", body) == 200


def test_readers_are_not_told_who_else_reads(app: InProcess, admin: Holder, ann: Holder) -> None:
    """The default acl of a vector DB is shown to writers only."""
    reader = holder(app, "rob", **ACME)
    admin.register("closed", default_acl=["group:sales", "user:hal"])
    for who, told in ((reader, False), (ann, True)):
        shown = who.ok("GET", "/v1/vector-dbs/closed")
        listed = who.ok("GET", "/v1/vector-dbs")["data"]
        assert ["default_acl" in one for one in (shown, *listed)] == [told] * 3


def test_a_copy_that_a_writer_may_not_make_leaves_nothing(admin: Holder, ann: Holder) -> None:
    """A writer copies chunks whose tokens it holds; otherwise there is no new vector DB."""
    chunks = [{"content": "a", "acl": ["group:sales"]}, {"content": "b", "acl": ["group:hr"]}]
    admin.ok("POST", "/v1/vector-io/insert", {"vector_db_id": "db", "chunks": chunks})
    assert ann.ok("POST", "/v1/vector-dbs/db/copy", {"target_id": "good"})["copied"] == 1
    both = [{"content": "c", "acl": ["group:sales", "group:hr"]}]
    admin.ok("POST", "/v1/vector-io/insert", {"vector_db_id": "db", "chunks": both})
    assert ann.status("POST", "/v1/vector-dbs/db/copy", {"target_id": "bad"}) == 403
    assert admin.status("GET", "/v1/vector-dbs/bad") == 400
    assert ann.status("POST", "/v1/vector-dbs/db/copy", {"target_id": "good"}) == 403
    assert admin.status("GET", "/v1/vector-dbs/good") == 200
