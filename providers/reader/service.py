"""Shared by the readers that are HTTP services: settings, connection and file names."""

from __future__ import annotations

import json
import mimetypes
from typing import Any

from pydantic import Field

from corral.api.errors import ProviderError
from corral.api.provider import Health, ReaderConfig, ReaderProvider
from corral.providers.models.http_service import HttpService, ServiceConfig

MIB = 1 << 20

_HINTS = {
    400: "The service does not read this file: check that it opens elsewhere, and the options.",
    404: "Check base_url: it ends before the service's own path.",
    413: "The file is larger than the service allows: raise its limit, or lower max_mib.",
    415: "The service does not read this type: take it out of mime_types.",
    422: "The service does not read this file: it may be damaged, or locked with a password.",
    500: "The service failed on this file; its own log has the reason.",
}


class ServiceReaderConfig(ReaderConfig, ServiceConfig):
    """The service, and the files to send to it.

    Attributes:
        base_url: The address of the service, without the path of its API.
        timeout_seconds: Time limit for one file, including all attempts and pauses; default 120.
        max_retries: Further attempts if the connection fails or the service is overloaded;
            default 2. A job also retries a document later.
        max_answer_mib: Maximum size of an answer of the service; default 128.
    """

    timeout_seconds: float = Field(default=120, gt=0, le=3600)
    max_retries: int = Field(default=2, ge=0, le=10)
    max_answer_mib: float = Field(default=128, gt=0)


class ServiceReader(ReaderProvider):
    """Base class of readers that are HTTP services; a subclass adds the paths and the wire format.

    Args:
        provider_id: Id of the provider in run.yaml.
        provider_type: Type for messages, such as `remote::tika`.
        config: Settings of the service.
        health_path: Path that answers while the service is running.
        key_header: Header for the API key; "" for a bearer token.
    """

    def __init__(
        self,
        provider_id: str,
        provider_type: str,
        config: ServiceReaderConfig,
        *,
        health_path: str,
        key_header: str = "",
    ) -> None:
        super().__init__(provider_id)
        self._health_path = health_path
        self._max_bytes = int(config.max_answer_mib * MIB)
        self._service = HttpService(
            f"{provider_id} ({provider_type})",
            config,
            hints=_HINTS,
            slow_hint="Large scans take minutes: raise timeout_seconds.",
            retry_busy=True,
            key_header=key_header,
        )

    async def health(self) -> Health:
        """Return OK if the service answers within 3 seconds."""
        return await self._service.health(self._health_path)

    async def close(self) -> None:
        """Close the connections."""
        await self._service.close()

    async def _send(self, method: str, path: str, **request: Any) -> bytes:
        return await self._service.send(method, path, max_bytes=self._max_bytes, **request)

    def _json(self, body: bytes) -> Any:
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise self._malformed() from None

    def _malformed(self) -> ProviderError:
        """Return the error for an answer in an unknown format."""
        return ProviderError(
            f"{self._service.name} answered in an unknown format.",
            hint="Compare base_url with the service's own, and the service's version.",
        )


def file_name(mime_type: str) -> str:
    """Return a file name to send, with the suffix of the type; the document's name stays here."""
    return f"document{mimetypes.guess_extension(mime_type) or ''}"
