"""The models, for OpenAI's and Llama Stack's clients."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from corral.api.errors import NotFound
from corral.providers.stack.stack import Stack
from corral.server.errors import ERRORS
from corral.server.openai.answered_chat import PREFIX
from corral.server.openai.routes import OpenAIRoute
from corral.server.routing import PathId, StackOf

router = APIRouter(prefix="/v1/models", tags=["Inspect"], route_class=OpenAIRoute, responses=ERRORS)


class Model(BaseModel):
    """An embedding model that vector DBs can be registered with, or a language model.

    Llama Stack and OpenAI use the same path; their clients ignore each other's fields.
    """

    id: str = Field(description="The identifier, for OpenAI's clients.")
    object: Literal["model"] = "model"
    created: int = Field(default=0, description="Always 0.")
    owned_by: str = Field(description="The provider, for OpenAI's clients.")
    identifier: str
    provider_resource_id: str
    provider_id: str
    type: Literal["model"] = "model"
    model_type: Literal["embedding", "llm"]
    metadata: dict[str, Any] = Field(
        description="Of an embedding model: `embedding_dimension`, `max_tokens` and whether it is "
        "the `default`. Of a language model: whether it is the `default`, which answers."
    )
    custom_metadata: dict[str, Any] = Field(
        description="The same with the model's type and provider, where OGX's clients read it."
    )


class ModelList(BaseModel):
    """The embedding models, the language models, and the vector DBs as models."""

    object: Literal["list"] = "list"
    data: list[Model]


@router.get("", summary="List the models")
async def list_models(stack: StackOf) -> ModelList:
    """Return the embedding models, the language models, then a model for each vector DB."""
    return ModelList(data=await _models(stack))


@router.get("/{model_id:id}", summary="Show a model")
async def retrieve_model(model_id: PathId, stack: StackOf) -> Model:
    """Return an embedding model, a language model, or the model of a vector DB."""
    models = await _models(stack)
    for model in models:
        if model.identifier == model_id:
            return model
    known = ", ".join(model.identifier for model in models)
    raise NotFound(f"There is no model {model_id!r}.", hint=f"Known: {known}.", field="model_id")


async def _models(stack: Stack) -> list[Model]:
    default = stack.default_model()
    embedding = [
        _model(
            provider_id,
            info.model,
            "embedding",
            embedding_dimension=info.dimension,
            max_tokens=info.max_tokens,
            default=info.model == default,
        )
        for provider_id, info in stack.models()
    ]
    writing = stack.inference_models(that_quote=True)
    answering = stack.answering_model() if writing else None
    language = [
        _model(provider_id, name, "llm", default=name == answering) for provider_id, name in writing
    ]
    vector_dbs = [
        _model(each.provider_id, f"{PREFIX}{each.identifier}", "llm", vector_db_id=each.identifier)
        for each in (await stack.vector_dbs() if language else ())
    ]
    return [*embedding, *language, *vector_dbs]


def _model(
    provider_id: str, name: str, model_type: Literal["embedding", "llm"], **metadata: Any
) -> Model:
    return Model(
        id=name,
        owned_by=provider_id,
        identifier=name,
        provider_resource_id=name,
        provider_id=provider_id,
        model_type=model_type,
        metadata=metadata,
        custom_metadata={
            "model_type": model_type,
            "provider_id": provider_id,
            "provider_resource_id": name,
            **metadata,
        },
    )
