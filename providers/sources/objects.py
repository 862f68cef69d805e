"""Object storage as a source: S3 and compatible services, Google Cloud Storage, Azure."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr, field_validator

from corral.api.errors import InvalidRequest, NotFound, Unavailable
from corral.api.source import Content, Listing, Source, SourceItem, SourceSpec
from corral.providers.sources.folder import MIB, SelectionConfig
from corral.providers.sources.walking import NameRules

SCHEMES = ("s3", "gs", "az", "abfs", "abfss")


class ObjectsConfig(SelectionConfig):
    """The bucket.

    Attributes:
        url: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or `az://CONTAINER/PREFIX`.
        options: Settings of obstore, such as `{access_key_id: ..., secret_access_key: ...,
            region: ..., endpoint: ...}` for S3. Masked. Default: from the environment, as for the
            cloud's own tools.
        allow_http: True to allow an endpoint without TLS; default false.
        timeout_seconds: Time limit of one request; default 60.
        retries: Further attempts if a request fails; default 5.
    """

    url: str
    options: dict[str, SecretStr] = Field(default_factory=dict)
    allow_http: bool = False
    timeout_seconds: float = Field(default=60, gt=0, le=3600)
    retries: int = Field(default=5, ge=0, le=20)

    @field_validator("url")
    @classmethod
    def _is_bucket(cls, value: str) -> str:
        scheme, separator, rest = value.partition("://")
        if scheme not in SCHEMES or not separator or not rest.strip("/") or "@" in rest:
            raise ValueError("must look like s3://bucket/prefix, gs://... or az://...")
        return value.rstrip("/")


class ObjectSource(Source):
    """Lists the objects below a prefix; the version of an object is its ETag."""

    def __init__(self, config: ObjectsConfig) -> None:
        obstore: Any = importlib.import_module("obstore.store")  # The extra may not be installed.
        self._errors: Any = importlib.import_module("obstore.exceptions")
        self._config = config
        self._names = NameRules(config.selection)
        endpoint = config.options.get("endpoint")
        place = f" at {endpoint.get_secret_value()}" if endpoint else ""
        self.identity = f"objects:{config.url}{place}"
        options: dict[str, Any] = {k: v.get_secret_value() for k, v in config.options.items()}
        limits = {"timeout": f"{config.timeout_seconds:g}s", "allow_http": config.allow_http}
        try:
            self._store: Any = obstore.from_url(
                config.url,
                config=options or None,
                client_options=limits,
                retry_config={"max_retries": config.retries},
            )
        except self._errors.BaseError as error:  # Its text may quote secret options.
            raise InvalidRequest(
                f"The options of {config.url} are invalid ({type(error).__name__}).",
                hint="Names of options are in docs/sources.md.",
            ) from None

    async def listing(self) -> Listing:
        """Return the objects; see `Source.listing`."""
        items: list[SourceItem] = []
        skipped: list[tuple[str, str]] = []
        try:
            async for batch in self._store.list(chunk_size=1000):
                for each in batch:
                    key = str(each["path"])
                    if each["size"] == 0 or not self._names.includes(key):
                        continue
                    if reason := self._refuses(key, each["size"]):
                        skipped.append((key, reason))
                    else:
                        tag = each.get("e_tag") or f"{each['last_modified']}-{each['size']}"
                        items.append(SourceItem(key, str(tag)[:200]))
        except self._errors.BaseError as error:
            raise self._failed(error) from None
        return Listing(items, skipped)

    async def read(self, item: SourceItem, stored_version: str | None) -> Content:
        """Return an object."""
        try:
            reply = await self._store.get_async(item.key)
            meta = reply.meta
            if meta["size"] > self._config.max_mib * MIB:
                raise InvalidRequest(f"Larger than max_mib, {self._config.max_mib:g}.")
            data = bytes(await reply.bytes_async())
        except self._errors.NotFoundError:
            raise NotFound(f"{item.key} is gone.") from None
        except self._errors.BaseError as error:
            raise self._failed(error) from None
        return Content(data, str(meta.get("e_tag") or item.version or "")[:200])

    def _refuses(self, key: str, size: int) -> str | None:
        if size > self._config.max_mib * MIB:
            return f"larger than max_mib, {self._config.max_mib:g}"
        return self._names.refuses_below(key)

    def _failed(self, error: Exception) -> Unavailable:
        return Unavailable(
            f"{self._config.url} cannot be read ({type(error).__name__}).",
            hint="Check the bucket's name, the region or endpoint, and the credentials.",
        )


def create(config: ObjectsConfig, home: Path) -> ObjectSource:
    """Return the source (its spec's factory)."""
    return ObjectSource(config)


SPEC = SourceSpec(
    name="objects",
    description="A bucket of S3, Google Cloud Storage or Azure.",
    config="corral.providers.sources.objects:ObjectsConfig",
    factory="corral.providers.sources.objects:create",
    requires=("obstore",),
    install="pip install 'corral-rag[object-storage]'",
)
