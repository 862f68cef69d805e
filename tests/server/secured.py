"""A server in process with API keys, and the requests that their holders send."""

from __future__ import annotations

import json
from typing import Any

import httpx

from corral.api.principal import Principal, Role
from corral.providers.state.keys import ApiKey, KeyStore
from corral.server.access.gate import Access

from .harness import JSON, InProcess, Requests


class Holder(Requests):
    """Somebody with an API key, or without one."""

    def __init__(self, app: InProcess, secret: str | None, key: ApiKey | None = None) -> None:
        self._app, self.secret, self._key = app, secret, key

    @property
    def principal(self) -> Principal:
        """Who it is."""
        assert self._key is not None
        return self._key.principal

    @property
    def key_id(self) -> str:
        """The public part of the key."""
        assert self._key is not None
        return self._key.key_id

    def send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """Send a request with the key and return the response."""
        given = {} if self.secret is None else {"authorization": f"Bearer {self.secret}"}
        content = None if body is None else json.dumps(body).encode()
        kind = JSON if body is not None else {}
        headers = {**given, **kind, **(headers or {})}
        return self._app.send(method, path, content=content, headers=headers)

    def status(self, method: str, path: str, body: Any = None) -> int:
        """Send a request and return the status of the reply."""
        return self.send(method, path, body).status_code

    def contents(self, question: str, db: str = "db") -> list[str]:
        """Return the contents of the chunks that a question finds, best first."""
        body = {"vector_db_id": db, "query": question}
        return [
            chunk["content"] for chunk in self.ok("POST", "/v1/vector-io/query", body)["chunks"]
        ]


def keys_of(app: InProcess) -> KeyStore:
    """Return the keys of a server that runs."""
    access: Access = app.app.state.access
    return access.callers.keys


def nobody(app: InProcess) -> Holder:
    """Return somebody without a key."""
    return Holder(app, None)


def holder(app: InProcess, user: str, role: Role = Role.READER, **of: Any) -> Holder:
    """Return the holder of a new key; `of` goes to `KeyStore.create`."""
    key, secret = app.run(lambda: keys_of(app).create(user, role=role, **of))
    return Holder(app, secret, key)
