"""A model hub on the loopback, for the tests of what is fetched."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Hub:
    """Serves the files of a folder as one revision of a repository; notes what it sent."""

    def __init__(self, folder: Path, repository: str, revision: str) -> None:
        self.sent: list[str] = []
        sent = self.sent
        prefix = f"/{repository}/resolve/{revision}/"

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = folder / self.path.removeprefix(prefix)
                found = self.path.startswith(prefix) and path.is_file()
                data = path.read_bytes() if found else b""
                self.send_response(200 if found else 404)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                if found:
                    sent.append(self.path.removeprefix(prefix))

            def log_message(self, *arguments: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def served(folder: Path, repository: str, revision: str) -> Iterator[Hub]:
    """Serve a folder as one revision of a repository."""
    hub = Hub(folder, repository, revision)
    try:
        yield hub
    finally:
        hub.close()
