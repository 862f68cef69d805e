"""An OpenSearch server on this machine, from jars that the Makefile fetches with Maven.

`make .venv/.opensearch` fetches them; it needs Maven, and Java 11 to 23: later ones have no
security manager, which 2.19 requires. CORRAL_TEST_OPENSEARCH names a server that runs instead: see
`../real_server.py`.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import ClassVar

import httpx

from ..real_server import Json, RealServer

HOME = Path(sys.prefix) / "opensearch"
"""The server's own files, which all nodes share."""

MISSING = "no OpenSearch: no CORRAL_TEST_OPENSEARCH, and no Java or no `make .venv/.opensearch`"

NOBODY = 65_534
"""The user of the server if the tests run as root, whom OpenSearch refuses."""

_CONSOLE = """\
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d][%p][%c{1.}] [%node_name]%marker %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class OpenSearchServer(RealServer):
    """One node.

    Args:
        peers: The nodes of its cluster, itself included; () if it is alone.
    """

    program: ClassVar[str] = "java"
    variable: ClassVar[str] = "CORRAL_TEST_OPENSEARCH"
    ready: ClassVar[str] = "/_cluster/health?wait_for_status=yellow&timeout=1s"
    number_of_ports: ClassVar[int] = 2
    peers: tuple[OpenSearchServer, ...] = ()

    @classmethod
    def found(cls) -> str | None:
        """Return the path of Java if the server's files are there, too."""
        return shutil.which(cls.program) if HOME.is_dir() else None

    def wait(self) -> None:
        """Wait until it answers; if it is alone, until it has made an index.

        A new server needs seconds for its first index on a busy machine, longer than the timeouts
        of some tests.
        """
        super().wait()
        if self.peers:
            return
        method = {"name": "hnsw", "engine": "lucene"}
        vector = {"type": "knn_vector", "dimension": 2, "method": method}
        body = {"settings": {"index.knn": True}, "mappings": {"properties": {"vector": vector}}}
        url = self.config["url"]
        with httpx.Client(base_url=url, trust_env=False, verify=False, timeout=60) as client:
            client.put("/warm-up", json=body).raise_for_status()
            client.delete("/warm-up").raise_for_status()

    @property
    def name(self) -> str:
        """The name of the node."""
        return f"node-{self.ports[0]}"

    def address(self) -> Json:
        """Return its address."""
        return {"url": f"http://127.0.0.1:{self.ports[0]}"}

    def environment(self) -> dict[str, str]:
        """Return nothing: its settings are in a file."""
        return {}

    def arguments(self) -> list[str]:
        """Write its settings, and return the arguments of Java."""
        config = self.folder / "config"
        config.mkdir(exist_ok=True)
        (config / "log4j2.properties").write_text(_CONSOLE)
        settings = {
            "cluster.name": "corral-tests",
            "node.name": self.name,
            "network.host": "127.0.0.1",
            "http.port": self.ports[0],
            "transport.port": self.ports[1],
            "path.data": self.folder / "data",
            "path.logs": self.folder / "logs",
            # Of a disk that is nearly full, as a developer's may be, it would make no use.
            "cluster.routing.allocation.disk.threshold_enabled": "false",
        }
        if self.peers:
            settings["discovery.seed_hosts"] = [f"127.0.0.1:{one.ports[1]}" for one in self.peers]
            settings["cluster.initial_cluster_manager_nodes"] = [one.name for one in self.peers]
        else:
            settings["discovery.type"] = "single-node"
        lines = [f"{key}: {value}\n" for key, value in settings.items()]
        (config / "opensearch.yml").write_text("".join(lines))
        for path in (self.folder, *self.folder.rglob("*")):
            if os.getuid() == 0:
                os.chown(path, NOBODY, NOBODY)
        return [
            *("-Xms512m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-Djava.security.manager=allow", "-Dlog4j2.disable.jmx=true"),
            f"-Djava.io.tmpdir={config}",
            *(f"-Dopensearch.path.home={HOME}", f"-Dopensearch.path.conf={config}"),
            *("-Dopensearch.distribution.type=tar", "-Dopensearch.bundled_jdk=false"),
            *("-cp", f"{HOME}/lib/*", "org.opensearch.bootstrap.OpenSearch"),
        ]

    def user(self) -> int | None:
        """Return a user without rights if the tests run as root."""
        return NOBODY if os.getuid() == 0 else None
