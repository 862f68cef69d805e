"""A model hub on the loopback, for the tests of what is fetched."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit


class Hub:
    """Serves the files of a folder as one revision of a repository; notes what it sent.

    Answers what Corral asks, and what the library huggingface_hub asks before it fetches.
    """

    def __init__(self, folder: Path, repository: str, revision: str, port: int = 0) -> None:
        self.sent: list[str] = []
        sent = self.sent
        prefix, about = f"/{repository}/resolve/{revision}/", f"/api/models/{repository}"

        def described() -> dict[str, bytes]:
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            names = [path.relative_to(folder).as_posix() for path in files]
            model = {
                "id": repository,
                "sha": revision,
                "siblings": [{"rfilename": n} for n in names],
            }
            tree = [
                {"type": "file", "path": name, "size": path.stat().st_size, "oid": name}
                for name, path in zip(names, files, strict=True)
            ]
            answers = {"": model, "/revision/main": model, f"/tree/{revision}": tree}
            return {about + path: json.dumps(answer).encode() for path, answer in answers.items()}

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self._answer()

            def do_GET(self) -> None:
                data = self._answer()
                self.wfile.write(data)
                if data and self.path.startswith(prefix):
                    sent.append(self.path.removeprefix(prefix))

            def _answer(self) -> bytes:
                path = folder / self.path.removeprefix(prefix)
                if self.path.startswith(prefix) and path.is_file():
                    data = path.read_bytes()
                else:
                    data = described().get(self.path.partition("?")[0], b"")
                self.send_response(200 if data else 404)
                self.send_header("content-length", str(len(data)))
                self.send_header("etag", f'"{len(data)}"')
                self.send_header("x-repo-commit", revision)
                self.end_headers()
                return data

            def log_message(self, *arguments: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def served(folder: Path, repository: str, revision: str) -> Iterator[Hub]:
    """Serve a folder as one revision of a repository, where libraries look for their hub."""
    hub = Hub(folder, repository, revision, urlsplit(os.environ["HF_ENDPOINT"]).port or 0)
    try:
        yield hub
    finally:
        hub.close()
