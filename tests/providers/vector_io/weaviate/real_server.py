"""A Weaviate server on this machine: see `../real_server.py`."""

from __future__ import annotations

from typing import ClassVar

from ..real_server import Json, RealServer


class WeaviateServer(RealServer):
    """One node, on seven free ports."""

    program: ClassVar[str] = "weaviate-server"
    variable: ClassVar[str] = "CORRAL_TEST_WEAVIATE"
    ready: ClassVar[str] = "/v1/.well-known/ready"
    number_of_ports: ClassVar[int] = 7

    def address(self) -> Json:
        """Return its REST address and its port of gRPC."""
        return {"url": f"http://127.0.0.1:{self.ports[0]}", "grpc_port": self.ports[1]}

    def arguments(self) -> list[str]:
        """Listen on 127.0.0.1."""
        return ["--host", "127.0.0.1", "--port", str(self.ports[0]), "--scheme", "http"]

    def environment(self) -> dict[str, str]:
        """Return the settings of a node alone."""
        _, grpc, gossip, data, raft, raft_rpc, profiling = map(str, self.ports)
        return {
            "PERSISTENCE_DATA_PATH": str(self.folder),
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
        } | (
            {} if "api_key" in self.config else {"AUTHENTICATION_ANONYMOUS_ACCESS_ENABLED": "true"}
        )
