"""A real server in a separate process, and request bodies for it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk

START_TIMEOUT_SECONDS = 60.0


@contextmanager
def running_server(home: Path, workers: int = 1) -> Iterator[str]:
    """Run `corral serve` on a free local port, and yield its URL when it responds.

    Raises:
        RuntimeError: The server ended, or did not respond for a minute; the message has its last
            output.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "corral.server.cli.cli", "--home", str(home), "serve"]
    command += ["--port", str(port), "--workers", str(workers)]
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command, env={**os.environ, "CORRAL_HOME": str(home)}, stdout=said, stderr=said
        )
        try:
            if not _answers(process, url):
                said.seek(0)
                words = said.read()[-500:].decode(errors="replace").strip()
                raise RuntimeError(f"The server does not answer: {words}")
            yield url
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(process: subprocess.Popen[bytes], url: str) -> bool:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    # creating a client for each attempt costs 20 ms
    with httpx.Client(base_url=url, trust_env=False) as client:
        while time.monotonic() < deadline and process.poll() is None:
            with suppress(httpx.TransportError):
                if client.get("/v1/health").status_code == 200:
                    return True
            time.sleep(0.01)
    return False


def query_body(vector_db_id: str, text: str, mode: str, k: int = 10) -> dict[str, Any]:
    """Return the body of a vector-io query."""
    return {
        "vector_db_id": vector_db_id,
        "query": text,
        "params": {"mode": mode, "max_chunks": k},
    }


def insert_body(
    vector_db_id: str, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]
) -> dict[str, Any]:
    """Return the body of a vector-io insert, with each embedding in its chunk."""
    sent = [
        {**chunk.model_dump(mode="json", exclude_none=True), "embedding": row.tolist()}
        for chunk, row in zip(chunks, embeddings, strict=True)
    ]
    return {"vector_db_id": vector_db_id, "chunks": sent}
