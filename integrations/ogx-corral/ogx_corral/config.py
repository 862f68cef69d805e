"""Settings of the provider in OGX's configuration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

from corral_client import DEFAULT_URL, CorralClient
from ogx.core.storage.datatypes import KVStoreReference, SqlStoreReference
from pydantic import BaseModel, ConfigDict, Field, SecretStr


class CorralConfig(BaseModel, ABC):
    """What both provider types take.

    Attributes:
        persistence: OGX's key-value store for the vector stores and their files.
        metadata_store: OGX's SQL store for them, which it needs for several tenants.
        search_mode: The mode of requests that name none.
        registration: Other fields of a vector DB's registration in Corral, such as language,
            ranker or rerank.
        embedding_model: Corral's name of the embedding model, configured there under
            `inline::external`. None takes `external-N` for the dimension N of a vector store.
    """

    model_config = ConfigDict(extra="forbid")

    persistence: KVStoreReference
    metadata_store: SqlStoreReference | None = None
    search_mode: Literal["vector", "keyword", "hybrid"] = "hybrid"
    registration: dict[str, Any] = Field(default_factory=dict)
    embedding_model: str | None = None

    @abstractmethod
    def client(self) -> CorralClient:
        """Return a client of the Corral that is configured."""


class RemoteCorralConfig(CorralConfig):
    """`remote::corral`.

    Attributes:
        url: The server's address.
        api_key: Needs the role writer where the server checks keys.
        provider_id: Which of the server's vector_io providers stores the chunks; None: its default.
        timeout: Seconds for a request.
    """

    url: str = DEFAULT_URL
    api_key: SecretStr | None = None
    provider_id: str | None = None
    timeout: float = Field(default=60, gt=0)

    def client(self) -> CorralClient:
        """Return a client of the server."""
        key = self.api_key.get_secret_value() if self.api_key else None
        return CorralClient(self.url, api_key=key, timeout=self.timeout)

    @classmethod
    def sample_run_config(cls, __distro_dir__: str) -> dict[str, Any]:
        """Return the settings of a new distribution."""
        return {
            "url": "${env.CORRAL_URL:=" + DEFAULT_URL + "}",
            "persistence": _persistence(),
        }


class InlineCorralConfig(CorralConfig):
    """`inline::corral`.

    Attributes:
        home: Corral's data folder.
        engine: Type of the vector_io provider that stores the chunks.
        engine_config: The settings of that provider.
    """

    home: str
    engine: str = "inline::sqlite"
    engine_config: dict[str, Any] = Field(default_factory=dict)

    def client(self) -> CorralClient:
        """Return a client of a Corral in this process."""
        from corral.providers.base.config import RunConfig  # noqa: PLC0415 - absent without the extra

        engine = {"provider_type": self.engine, "config": self.engine_config}
        external = {"provider_id": "external", "provider_type": "inline::external"}
        providers = {"vector_io": [{"provider_id": "corral", **engine}], "embedding": [external]}
        return CorralClient(
            home=self.home, config=RunConfig.model_validate({"providers": providers})
        )

    @classmethod
    def sample_run_config(cls, __distro_dir__: str) -> dict[str, Any]:
        """Return the settings of a new distribution."""
        return {"home": f"{__distro_dir__}/corral", "persistence": _persistence()}


def _persistence() -> dict[str, Any]:
    return {"backend": "kv_default", "namespace": "vector_io::corral"}
