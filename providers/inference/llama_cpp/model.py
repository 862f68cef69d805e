"""Load a GGUF file with llama.cpp, and answer in worker threads."""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from corral.api.errors import ConfigError, ProviderError, Refused, Unavailable
from corral.api.provider import ChatChunk, ChatRequest
from corral.providers.inference.llama_cpp.config import LlamaModel
from corral.providers.inference.llama_cpp.request import request_text
from corral.providers.models.hub import check_digest

if TYPE_CHECKING:
    from xllamacpp import Server

BATCH_TOKENS = 128
"""Tokens of a prompt computed per batch, and so the maximum computed after an answer is stopped."""
SILENT = -1
"""llama.cpp's verbosity: no output, not even errors, which may quote a request."""

_CHUNK = ("id", "object", "created", "model", "choices")
_USAGE = ("prompt_tokens", "completion_tokens", "total_tokens")
_REFUSAL = '{"error": {"type": "invalid_request_error"}}'


def check_file(model: LlamaModel) -> None:
    """Refuse a model whose file does not exist.

    Raises:
        ConfigError: The file does not exist.
    """
    if not model.path.is_file():
        raise ConfigError(
            f"{model.model!r} has no file {model.path.name!r}.",
            hint="Set path to a GGUF file.",
            field="path",
        )


class LocalModel:
    """A loaded model. Use it in one event loop at a time.

    Args:
        name: The provider's name in messages.
        model: Its settings.
        threads: Threads of one computation.

    Raises:
        ConfigError: The file is missing, has another sha256, or is not a model of llama.cpp.
    """

    def __init__(self, name: str, model: LlamaModel, threads: int) -> None:
        check_file(model)
        if model.sha256 is not None:
            hint = "Put the right file there, or correct sha256."
            check_digest(model.path, model.sha256, model.model, hint)
        self._name, self._settings = name, model
        self._server: Server | None = _load(model, threads)
        self._closed = threading.Event()
        self._workers = ThreadPoolExecutor(model.concurrency, thread_name_prefix=name)

    async def answer(self, request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        """Stream an answer. Ending the iteration stops the computation within a batch or a token.

        Yields:
            Objects `chat.completion.chunk`; the last one has `usage`.

        Raises:
            Refused: The request is malformed, or the prompt exceeds the context.
            ProviderError: llama.cpp failed.
            Unavailable: The model was closed before the end.
        """
        text = request_text(request, self._settings)
        loop, stopped = asyncio.get_running_loop(), threading.Event()
        events: asyncio.Queue[str | None] = asyncio.Queue()

        def put(event: str | None) -> None:
            with suppress(RuntimeError):  # The loop may be closed by now.
                loop.call_soon_threadsafe(events.put_nowait, event)

        def receive(event: str) -> bool:
            """Receive an event of llama.cpp; return True to stop the computation."""
            if stopped.is_set() or self._closed.is_set():
                return True
            put(event)
            return False

        work = self._workers.submit(self._compute, text, receive)
        work.add_done_callback(lambda _: put(None))
        has_ended = False
        try:
            while (event := await events.get()) is not None:
                if (chunk := self._chunk(json.loads(event))) is not None:
                    has_ended |= any(each.get("finish_reason") for each in chunk["choices"])
                    yield chunk
        finally:
            stopped.set()
            work.cancel()
        if not has_ended:
            raise Unavailable(f"{self._name} stopped before the end of an answer.")

    def close(self) -> None:
        """Stop every answer and free the memory. Blocking: waits for the running batch."""
        self._closed.set()
        self._workers.shutdown(wait=True, cancel_futures=True)
        self._server = None

    def _compute(self, text: str, receive: Callable[[str], bool]) -> None:
        server = self._server
        if server is None:
            return
        try:
            server.handle_chat_completions(text, receive)
        # Errors about messages, tools and schemas that llama.cpp cannot read.
        except (ValueError, RuntimeError):
            receive(_REFUSAL)

    def _chunk(self, event: dict[str, Any]) -> ChatChunk | None:
        """Return the chunk of an event; None for progress with a prompt.

        Cache counts and timings are omitted, because they would reveal other users' prompts.

        Raises:
            ProviderError: The event is an error.
        """
        if "error" in event:
            raise self._failure(event["error"])
        if "prompt_progress" in event:
            return None
        chunk = {name: event[name] for name in _CHUNK if name in event}
        if usage := event.get("usage"):
            chunk["usage"] = {name: usage[name] for name in _USAGE}
        return chunk

    def _failure(self, error: dict[str, Any]) -> ProviderError:
        """Translate an error of llama.cpp, without its message, which quotes requests."""
        kind = error.get("type")
        if kind == "exceed_context_size_error":
            return Refused(
                f"{self._name}: the prompt has {error.get('n_prompt_tokens')} tokens, and the "
                f"context of {self._settings.model!r} has {error.get('n_ctx')}.",
                code="context_length_exceeded",
                hint="Shorten the messages, or raise context_tokens.",
            )
        if kind == "invalid_request_error":
            return Refused(
                f"{self._name} cannot use the request.",
                code="invalid_prompt",
                hint="Check messages, tools, response_format and the sampling parameters.",
            )
        return ProviderError(f"{self._name} failed.")


def _load(model: LlamaModel, threads: int) -> Server:
    """Load a file.

    The library holds the interpreter's lock during the load, so the process serves nothing else.
    The library's server also listens for HTTP: here, on a socket in a private folder that is
    deleted after the load, so no client can reach it.

    Raises:
        ConfigError: llama.cpp cannot run the file, or a library of the system is missing.
    """
    try:
        import xllamacpp  # noqa: PLC0415 - 100 MB, so the first model loads it
    except ImportError as error:
        raise ConfigError(
            f"xllamacpp cannot be imported: {error}.",
            hint="It needs OpenMP: on Debian and Ubuntu, apt-get install libgomp1.",
        ) from error
    with TemporaryDirectory(prefix="corral-") as folder:
        params = xllamacpp.CommonParams()
        params.hostnames = [str(Path(folder) / "unused.sock")]
        params.api_keys = [secrets.token_hex(16)]
        params.n_threads_http = 1
        params.ui = params.endpoint_slots = False
        params.offline = True
        params.verbosity = SILENT
        params.model.path = str(model.path)
        params.n_parallel = model.concurrency
        params.n_ctx = model.context_tokens * model.concurrency
        params.n_batch = params.n_ubatch = BATCH_TOKENS
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.cache_ram_mib = 0  # By default it caches up to 8 GB of earlier conversations.
        params.fit_params = params.warmup = False
        try:
            return xllamacpp.Server(params)
        except RuntimeError as error:
            raise ConfigError(
                f"llama.cpp cannot load {model.path.name!r} of {model.model!r}.",
                hint="Use the whole GGUF file of a language model, or a smaller context_tokens.",
                field="path",
            ) from error
