"""A small service on 127.0.0.1 that speaks /v1/embeddings, or misbehaves as it is told."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from corral.providers.embedding.openai.config import OpenAIConfig
from corral.providers.embedding.openai.embedder import OpenAIProvider, create

from ...json_service import KEY, Reply, Replying, served

T = TypeVar("T")
MODEL: dict[str, Any] = {"model": "tiny", "dimension": 3}


@dataclass
class Service:
    """The running service: what it got, and what it shall answer next.

    A text `"<number>"`, after any prefix that ends in a space, gets the embedding [number, 1, 0].
    """

    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    always: Reply | None = None
    reverse: bool = False
    delay_seconds: float = 0.0
    busy: int = 0
    most_busy: int = 0
    asked: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> Reply | None:
        with self.lock:
            return self.replies.pop(0) if self.replies else self.always

    def embeddings(self, request: dict[str, Any]) -> bytes:
        data = [
            {"object": "embedding", "index": i, "embedding": [_number(text), 1.0, 0.0]}
            for i, text in enumerate(request["input"])
        ]
        return json.dumps({"object": "list", "data": data[::-1] if self.reverse else data}).encode()


def _number(text: str) -> float:
    word = text.rsplit(" ", maxsplit=1)[-1]
    return float(word) if word else -1.0


def _handler(service: Service) -> type[Replying]:
    class Handler(Replying):
        released = service.released

        def do_GET(self) -> None:
            self.reply(service.take() or Reply(body=b'{"data": []}'))

        def do_POST(self) -> None:
            request = self.json_body()
            with service.lock:
                service.requests.append(request | {"path": self.path})
                service.headers.append({k.lower(): v for k, v in self.headers.items()})
                service.busy += 1
                service.most_busy = max(service.most_busy, service.busy)
            service.asked.set()
            try:
                reply = service.take()
                if reply is None:
                    service.released.wait(service.delay_seconds)
                    reply = Reply(body=service.embeddings(request))
            finally:
                with service.lock:
                    service.busy -= 1
            self.reply(reply)

    return Handler


@contextmanager
def running_service() -> Iterator[Service]:
    """Run a service on a free port of 127.0.0.1."""
    service = Service()
    with served(_handler(service)) as service.url:
        try:
            yield service
        finally:
            service.released.set()


def configured(url: str, **settings: Any) -> OpenAIConfig:
    """Return settings with one model `tiny` of dimension 3, quick retries and a key."""
    defaults: dict[str, Any] = {"models": [MODEL], "retry_delay_seconds": 0.001, "api_key": KEY}
    return OpenAIConfig.model_validate({"base_url": url, **defaults, **settings})


def with_provider(config: OpenAIConfig, work: Callable[[OpenAIProvider], Awaitable[T]]) -> T:
    """Return what `work` returns on a provider `tei`, which is closed afterward."""

    async def run() -> T:
        provider = create("tei", config, Path())
        try:
            return await work(provider)
        finally:
            await provider.close()

    return asyncio.run(run())


def embed(config: OpenAIConfig, texts: list[str]) -> Any:
    """Return the embeddings of documents by the model `tiny`."""

    async def work(provider: OpenAIProvider) -> Any:
        return await (await provider.embedder("tiny")).embed_documents(texts)

    return with_provider(config, work)


def response(embeddings: list[Any]) -> bytes:
    """Return the body of an answer with these embeddings, numbered from 0."""
    data = [{"index": i, "embedding": e} for i, e in enumerate(embeddings)]
    return json.dumps({"data": data}).encode()
