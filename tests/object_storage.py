"""A server of S3's protocol on this machine: moto, in a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from xml.etree import ElementTree

import httpx
import pytest

PACKAGES = Path(sys.prefix) / "clients" / "moto"
START_SECONDS = 60
NAMESPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"
TIMEOUT_SECONDS = 60.0
"""How long a client waits for the server on a busy machine."""
SECRET = "the-secret-key"


class ObjectStorage:
    """The server; its buckets are in its memory. Use it as a context manager."""

    def __init__(self) -> None:
        if not PACKAGES.exists():
            pytest.skip(f"no {PACKAGES}: make test installs it")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(PACKAGES)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> Self:
        deadline = time.monotonic() + START_SECONDS
        while True:
            assert self._process.poll() is None, "moto ended"
            try:
                httpx.get(self.url, timeout=START_SECONDS)
            except httpx.TransportError:
                assert time.monotonic() < deadline, "moto does not answer"
                time.sleep(0.05)
            else:
                return self

    def __exit__(self, *raised: object) -> None:
        self._process.kill()
        self._process.wait()

    def bucket(self, name: str, timeout_seconds: float = TIMEOUT_SECONDS) -> dict[str, Any]:
        """Make a bucket, and return the settings of `files` for it."""
        httpx.put(f"{self.url}/{name}", timeout=START_SECONDS).raise_for_status()
        options = {"region": "us-east-1", "access_key_id": "key", "secret_access_key": SECRET}
        return {
            "url": f"s3://{name}/corral",
            "endpoint": self.url,
            "options": options,
            "timeout_seconds": timeout_seconds,
        }

    def keys(self, bucket: str) -> set[str]:
        """Return the keys of a bucket's objects, and of uploads that are not complete."""
        found = set()
        for query, name in (("list-type=2", "Contents"), ("uploads", "Upload")):
            answer = httpx.get(f"{self.url}/{bucket}?{query}", timeout=START_SECONDS)
            for one in ElementTree.fromstring(answer.text).iter(f"{NAMESPACE}{name}"):
                found.add(str(one.findtext(f"{NAMESPACE}Key")))
        return found

    def put(self, bucket: str, key: str, data: bytes) -> None:
        """Store an object, past Corral."""
        signed = {
            "authorization": "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request"
        }
        answer = httpx.put(f"{self.url}/{bucket}/{key}", content=data, headers=signed)
        answer.raise_for_status()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Keep the server from answering for the time of a context."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)
