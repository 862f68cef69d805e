"""A Qdrant server on this machine: see `../real_server.py`."""

from __future__ import annotations

from typing import ClassVar

from ..real_server import Json, RealServer


class QdrantServer(RealServer):
    """One node, on two free ports; its settings are variables such as QDRANT__SERVICE__API_KEY."""

    program: ClassVar[str] = "qdrant"
    variable: ClassVar[str] = "CORRAL_TEST_QDRANT"
    ready: ClassVar[str] = "/readyz"
    number_of_ports: ClassVar[int] = 2

    def address(self) -> Json:
        """Return its REST address and its port of gRPC."""
        return {"url": f"http://127.0.0.1:{self.ports[0]}", "grpc_port": self.ports[1]}

    def environment(self) -> dict[str, str]:
        """Listen on 127.0.0.1, store in the folder, and report nothing to anybody."""
        return {
            "QDRANT__SERVICE__HOST": "127.0.0.1",
            "QDRANT__SERVICE__HTTP_PORT": str(self.ports[0]),
            "QDRANT__SERVICE__GRPC_PORT": str(self.ports[1]),
            "QDRANT__STORAGE__STORAGE_PATH": str(self.folder / "storage"),
            "QDRANT__STORAGE__SNAPSHOTS_PATH": str(self.folder / "snapshots"),
            "QDRANT__TELEMETRY_DISABLED": "true",
        }
