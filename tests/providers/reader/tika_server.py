"""A Tika server on this machine, from the jar that the Makefile fetches with Maven.

`make .venv/.tika` fetches it, 66 MB. CORRAL_TEST_TIKA names a server that runs instead, such as
`http://127.0.0.1:9998`.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import ClassVar

from ..vector_io.real_server import Json, RealServer

JAR = Path(sys.prefix) / "tika" / "tika-server-standard.jar"

MISSING = "no Tika: no CORRAL_TEST_TIKA, and no Java or no `make .venv/.tika`"


class TikaServer(RealServer):
    """Apache Tika in one process."""

    program: ClassVar[str] = "java"
    variable: ClassVar[str] = "CORRAL_TEST_TIKA"
    ready: ClassVar[str] = "/version"
    number_of_ports: ClassVar[int] = 1

    @classmethod
    def found(cls) -> str | None:
        """Return the path of Java if the jar is there, too."""
        return shutil.which(cls.program) if JAR.is_file() else None

    def address(self) -> Json:
        """Return its address."""
        return {"url": f"http://127.0.0.1:{self.ports[0]}"}

    def environment(self) -> dict[str, str]:
        """Return nothing: its settings are arguments."""
        return {}

    def arguments(self) -> list[str]:
        """Return the arguments of Java."""
        return [
            *("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-Djava.awt.headless=true", f"-Djava.io.tmpdir={self.folder}"),
            *("-jar", str(JAR), "--noFork", "--host", "127.0.0.1", "--port", str(self.ports[0])),
        ]
