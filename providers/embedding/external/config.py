"""Settings of inline::external."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from corral.api.provider import ProviderConfig
from corral.providers.models.names import ModelName, each_once


class ExternalModel(ProviderConfig):
    """A model that runs outside Corral.

    Attributes:
        model: The name that vector DBs register.
        dimension: Numbers in an embedding, 1 to 16,000. Other embeddings are rejected.
        unrelated_cosine: Cosine of unrelated texts, in [-0.99, 0.99], the zero point of
            confidence; default 0. Some models put all texts close together.
    """

    model: ModelName
    dimension: int = Field(ge=1, le=16_000)
    unrelated_cosine: float = Field(default=0.0, ge=-0.99, le=0.99)


COMMON_DIMENSIONS = (256, 384, 512, 768, 1024, 1536, 3072)
"""Dimensions of models in common use."""


def _common() -> list[ExternalModel]:
    return [ExternalModel(model=f"external-{each}", dimension=each) for each in COMMON_DIMENSIONS]


class ExternalConfig(ProviderConfig):
    """The models.

    Attributes:
        models: At least one, with different names. By default `external-N` for each of
            `COMMON_DIMENSIONS`.
    """

    models: Annotated[list[ExternalModel], AfterValidator(each_once)] = Field(
        default_factory=_common, min_length=1
    )
