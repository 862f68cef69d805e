"""The configuration of uploaded files."""

from __future__ import annotations

from pydantic import Field, SecretStr, model_validator

from corral.providers.base.server_config import Section

MAX_OBJECT_MIB = 5 * 1024
"""Largest object that S3 copies in one request."""


class FileSettings(Section):
    """Settings of uploaded files: maximum size, and location of the contents."""

    max_mib: float = Field(default=512, gt=0, description="Largest file.")
    url: str | None = Field(
        default=None,
        pattern=r"^(s3|gs|az)://[^\s/@?#]+(/[^\s@?#]*)?$",
        description="Object storage for their contents: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or "
        "az://CONTAINER/PREFIX. null: the folder `blobs` in the data folder.",
    )
    endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s/@?#]+(/[^\s@?#]*)?$",
        description="Address of another service that speaks S3's or Azure's protocol.",
    )
    options: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="Options of obstore's store, such as region, access_key_id and "
        "secret_access_key. What is not here comes from the environment, such as AWS_REGION.",
    )
    timeout_seconds: float = Field(
        default=10,
        gt=0,
        le=300,
        description="How long object storage may take to accept a part or to send the next bytes.",
    )

    @model_validator(mode="after")
    def _copied_in_one_request(self) -> FileSettings:
        if self.url is None:
            if self.endpoint is not None or self.options:
                raise ValueError("endpoint and options need url")
        elif self.max_mib > MAX_OBJECT_MIB:
            raise ValueError(f"max_mib must be <= {MAX_OBJECT_MIB} with url")
        return self
