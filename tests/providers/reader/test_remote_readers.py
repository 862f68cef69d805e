"""The readers behind HTTP: they pass the suite, and their failures are those of other services."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from corral.api.errors import (
    ConfigError,
    CorralError,
    InvalidRequest,
    ProviderError,
    ProviderTimeout,
    Unavailable,
)
from corral.api.provider import Api, ReaderProvider
from corral.api.testing import ReaderConformance
from corral.providers.base.config import ProviderEntry, Providers, RagSettings, RunConfig
from corral.providers.base.document_limits import DocumentLimits
from corral.providers.ingestion.read.reading import Reader
from corral.providers.stack.configured import ConfiguredProviders
from corral.providers.stack.registry import build_provider

from ..json_service import Reply, closed_port
from . import services
from .services import TYPE, Request, running, sample

SAMPLES = (
    sample("Animals", "lion zebra", "okapi", "heron ibis"),
    sample("Trees", "maple oak", "birch"),
)
KINDS = {
    "remote::docling-serve": services.docling,
    "remote::tika": services.tika,
    "remote::unstructured": services.unstructured,
}
KEYS = {
    "remote::docling-serve": "x-api-key",
    "remote::tika": "authorization",
    "remote::unstructured": "unstructured-api-key",
}


def entry(kind: str, url: str, **config: Any) -> ProviderEntry:
    """Return the entry of a reader in run.yaml."""
    settings = {"base_url": url, "mime_types": [TYPE], "retry_delay_seconds": 0.01, **config}
    return ProviderEntry(provider_id="mine", provider_type=kind, config=settings)


def reader_of(folder: Path, *entries: ProviderEntry, **limits: Any) -> Reader:
    """Return the reading of a server with these readers."""
    config = RunConfig(
        providers=Providers(reader=list(entries)),
        rag=RagSettings(document_limits=DocumentLimits(**limits)),
    )
    return Reader(config.rag, ConfiguredProviders(config, folder).readers())


class Remote(ReaderConformance):
    samples = SAMPLES
    kind: str
    script: Callable[[Request], Reply]

    @contextmanager
    def open_reader(self) -> Iterator[ReaderProvider]:
        with running(KINDS[self.kind]) as service:
            provider = build_provider(Api.READER, entry(self.kind, service.url), Path())
            assert isinstance(provider, ReaderProvider)
            yield provider


class TestDoclingServe(Remote):
    kind = "remote::docling-serve"


class TestTika(Remote):
    kind = "remote::tika"


class TestUnstructured(Remote):
    kind = "remote::unstructured"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_document_of_a_configured_type_goes_to_the_reader(
    kind: str, tmp_path: Path
) -> None:
    """Its text, pages and headings are the service's; the service learns no name, but the key.

    If this fails: compare the request with the service's documentation.
    """
    with running(KINDS[kind]) as service:
        reader = reader_of(tmp_path, entry(kind, service.url, api_key="sk-very-secret"))
        parsed = await reader.read(SAMPLES[0].data, TYPE)
        [request] = service.requests
    assert [parsed.page(parsed.text.index(word)) for word in ("zebra", "okapi", "ibis")] == [
        1,
        2,
        3,
    ]
    assert parsed.markdown
    assert parsed.title == "Animals"
    assert request.data == SAMPLES[0].data
    assert request.filename in {"", "document"}
    assert request.headers[KEYS[kind]] in {"sk-very-secret", "Bearer sk-very-secret"}
    assert "running header" not in parsed.text
    if kind == "remote::docling-serve":
        assert parsed.unread == ("1 picture",)


@pytest.mark.parametrize("form", ["bytes", "data: URI", "file", "gzip"])
async def test_every_form_of_a_document_is_routed(form: str, tmp_path: Path) -> None:
    """Bytes, a `data:` URI, an uploaded file and a compressed file reach the same reader."""
    data = SAMPLES[1].data
    with running(services.tika) as service:
        reader = reader_of(
            tmp_path, entry("remote::tika", service.url, mime_types=["application/msword", TYPE])
        )
        if form == "bytes":
            parsed = await reader.read(data, f"{TYPE}; charset=utf-8")
        elif form == "data: URI":
            import base64

            body = base64.b64encode(data).decode()
            parsed = await reader.read_data_uri(f"data:{TYPE};base64,{body}", None)
        elif form == "gzip":
            parsed = await reader.read(gzip.compress(data), TYPE)
        else:
            (tmp_path / "blob").write_bytes(data)
            parsed = await reader.read_file(tmp_path / "blob", "letter.doc")
    assert "birch" in parsed.text
    assert service.requests[0].data == data


async def test_other_types_stay_in_this_process(tmp_path: Path) -> None:
    """A reader gets nothing of a type that it is not configured for, whatever its sender names."""
    with running(services.tika) as service:
        reader = reader_of(
            tmp_path, entry("remote::tika", service.url, mime_types=["application/pdf"])
        )
        assert (await reader.read("lion", None)).text == "lion"
        assert (await reader.read(b"<html><body>okapi</body></html>", None)).text == "okapi"
        assert (await reader.read(b"zebra", "text/plain")).text == "zebra"
    assert service.requests == []


async def test_the_content_decides_about_the_type(tmp_path: Path) -> None:
    """A PDF that is named as text goes to the reader of PDFs."""
    with running(services.tika) as service:
        reader = reader_of(
            tmp_path, entry("remote::tika", service.url, mime_types=["application/pdf"])
        )
        with pytest.raises(InvalidRequest):
            await reader.read(b"%PDF-1.7 broken", "text/plain")
    assert [request.mime_type for request in service.requests] == ["application/pdf"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("reply", "error", "retryable"),
    [
        (Reply(503), Unavailable, True),
        (Reply(504), Unavailable, True),
        (Reply(hang_up=True), Unavailable, True),
        (Reply(401), ProviderError, False),
        (Reply(500), ProviderError, False),
        (Reply(413), InvalidRequest, False),
        (Reply(422), InvalidRequest, False),
    ],
)
async def test_failures_are_those_of_other_services(
    kind: str, reply: Reply, error: type[CorralError], retryable: bool, tmp_path: Path
) -> None:
    """The error says whether a retry helps, and neither it nor its hint has the key or the text."""
    reply.body = b'{"detail": "lion zebra"}'
    with running(lambda _: reply) as service:
        settings = {"api_key": "sk-very-secret", "max_retries": 1}
        reader = reader_of(tmp_path, entry(kind, service.url, **settings))
        with pytest.raises(error) as caught:
            await reader.read(SAMPLES[0].data, TYPE)
    assert getattr(caught.value, "retryable", False) is retryable
    assert "mine" in caught.value.message
    assert not {"lion", "sk-very-secret"} & set(str(caught.value).split())
    if retryable:
        assert len(service.requests) == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_a_service_that_is_not_there(kind: str, tmp_path: Path) -> None:
    """It is unavailable, its health says so, and the built-in reader does not take its place."""
    url = closed_port().removesuffix("/v1")
    reader = reader_of(tmp_path, entry(kind, url, max_retries=0, mime_types=["text/html"]))
    with pytest.raises(Unavailable, match="mine"):
        await reader.read("<html>lion</html>", "text/html")
    provider = build_provider(Api.READER, entry(kind, url), tmp_path)
    assert (await provider.health()).status == "Error"
    await provider.close()


@pytest.mark.parametrize("kind", ["remote::docling-serve", "remote::unstructured"])
@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'{"document": 3}', b'[{"type": 1}]', b"null"])
async def test_answers_in_another_format(kind: str, body: bytes, tmp_path: Path) -> None:
    """They are the service's failure (502), not the document's."""
    with running(lambda _: Reply(body=body)) as service:
        reader = reader_of(tmp_path, entry(kind, service.url))
        with pytest.raises(ProviderError, match="unknown format"):
            await reader.read(SAMPLES[0].data, TYPE)


async def test_bounds(tmp_path: Path) -> None:
    """Bytes before, and the answer's bytes, its pages and characters after the call are bounded.

    If this fails: an answer is held or stored that the built-in readers would have refused.
    """
    with running(services.tika) as service:

        def reader(limits: dict[str, Any], **config: Any) -> Reader:
            return reader_of(tmp_path, entry("remote::tika", service.url, **config), **limits)

        data = sample("Long", *["word " * 40] * 30).data
        with pytest.raises(InvalidRequest, match=r"0\.001 MiB"):
            await reader({}, max_mib=0.001).read(data, TYPE)
        path = tmp_path / "large.doc"
        path.write_bytes(data)
        with pytest.raises(InvalidRequest, match=r"0\.001 MiB"):
            await reader({}, max_mib=0.001, mime_types=["application/msword"]).read_file(
                path, "large.doc"
            )
        assert service.requests == []
        with pytest.raises(ProviderError, match="more than 1,048 bytes"):
            await reader({}, max_answer_mib=0.001).read(data, TYPE)
        with pytest.raises(InvalidRequest, match="29 pages"):
            await reader({"max_pages": 29}).read(data, TYPE)
        with pytest.raises(InvalidRequest, match="1,000 characters"):
            await reader({"max_characters": 1000}).read(data, TYPE)


async def test_time_is_bounded(tmp_path: Path) -> None:
    """A service that does not answer is a timeout, which is retryable."""
    import threading

    released = threading.Event()

    def slow(_: Request) -> Reply:
        released.wait(60)
        return Reply()

    with running(slow) as service:
        reader = reader_of(tmp_path, entry("remote::tika", service.url, timeout_seconds=0.2))
        try:
            with pytest.raises(ProviderTimeout):
                await reader.read(SAMPLES[0].data, TYPE)
        finally:
            released.set()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"mime_types": []}, "mime_types"),
        ({"mime_types": ["pdf"]}, "mime_types"),
        ({"mime_types": ["*/*"]}, "mime_types"),
        ({"base_url": "http://me:secret@host"}, "base_url"),
        ({"options": {"Authorization": "x"}}, "X-Tika-"),
    ],
)
def test_settings_are_checked_at_the_start(
    config: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """A reader without types, or with options that are no options, stops the start."""
    with pytest.raises(ConfigError, match=message) as caught:
        reader_of(tmp_path, entry("remote::tika", "http://127.0.0.1:9", **config))
    assert "secret" not in str(caught.value)
