"""A Weaviate server on this machine, which the tests take before the stand-in where there is one.

`weaviate-server` on PATH is started, once for each process of the tests, with the
environment as it is: ASYNC_INDEXING=true, for one, reaches it. CORRAL_TEST_WEAVIATE names a running
one instead, as "http://127.0.0.1:8080 50051": its REST address and its gRPC port.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

ADDRESS = "CORRAL_TEST_WEAVIATE"

Json = dict[str, Any]


def program() -> str | None:
    """Return the path of a server's program; None where there is none."""
    return shutil.which("weaviate-server")


def address() -> Json | None:
    """Return the settings of the provider for a server that runs; None where none is named."""
    named = os.environ.get(ADDRESS)
    if not named:
        return None
    url, grpc_port = named.split()
    return {"url": url, "grpc_port": int(grpc_port)}


class Server:
    """A server over one folder; ports and folder stay the same."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = _free_ports(7)
        self._process: subprocess.Popen[bytes] | None = None
        self.config: Json = {
            "url": f"http://127.0.0.1:{self._ports[0]}",
            "grpc_port": self._ports[1],
        }

    def launch(self) -> None:
        """Start its process."""
        found = program()
        assert found is not None
        http, grpc, gossip, data, raft, raft_rpc, profiling = map(str, self._ports)
        settings = {
            "PERSISTENCE_DATA_PATH": str(self._folder),
            "AUTHENTICATION_ANONYMOUS_ACCESS_ENABLED": "true",
            "DEFAULT_VECTORIZER_MODULE": "none",
            "DISABLE_TELEMETRY": "true",
            "CLUSTER_HOSTNAME": "node1",
            "CLUSTER_ADVERTISE_ADDR": "127.0.0.1",
            "CLUSTER_GOSSIP_BIND_PORT": gossip,
            "CLUSTER_DATA_BIND_PORT": data,
            "RAFT_PORT": raft,
            "RAFT_INTERNAL_RPC_PORT": raft_rpc,
            "RAFT_BOOTSTRAP_EXPECT": "1",
            "RAFT_JOIN": f"node1:{raft}",
            "GRPC_PORT": grpc,
            "PROFILING_PORT": profiling,
        }
        self._process = subprocess.Popen(
            [found, "--host", "127.0.0.1", "--port", http, "--scheme", "http"],
            env=os.environ | settings,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def wait(self) -> None:
        """Wait until it answers."""
        assert self._process is not None
        deadline = time.monotonic() + 60
        with httpx.Client(base_url=self.config["url"], trust_env=False, timeout=1) as client:
            while time.monotonic() < deadline:
                assert self._process.poll() is None, "weaviate-server ended"
                try:
                    client.get("/v1/.well-known/ready").raise_for_status()
                    return
                except httpx.HTTPError:
                    time.sleep(0.05)
        raise TimeoutError("weaviate-server does not answer")

    def kill(self) -> None:
        """Kill it, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=30)
            self._process = None

    def freeze(self) -> None:
        """Stop it for a while; it neither answers nor hangs up."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


def remove(config: Json) -> None:
    """Delete all collections with the prefix of these settings."""
    with httpx.Client(base_url=config["url"], trust_env=False, timeout=30) as client:
        for one in client.get("/v1/schema").raise_for_status().json()["classes"]:
            if one["class"].startswith(config["collection_prefix"]):
                client.delete(f"/v1/schema/{one['class']}").raise_for_status()


def _free_ports(number: int) -> list[int]:
    with ExitStack() as probes:
        found = [probes.enter_context(socket.socket()) for _ in range(number)]
        for probe in found:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in found]
