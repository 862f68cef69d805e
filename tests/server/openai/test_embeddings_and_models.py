"""Embeddings and models by OpenAI's API."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from openai.types import CreateEmbeddingResponse, Model
from rs_bpe.bpe import openai as vocabularies

from ..harness import DIMENSION
from .doubles import ClockedApp

PATH = "/v1/embeddings"


def embed(app: ClockedApp, given: Any, **more: Any) -> list[Any]:
    """Return the embeddings of an input."""
    reply = app.ok("POST", PATH, {"model": "hashing", "input": given, **more})
    return [each["embedding"] for each in reply["data"]]


def test_floats_and_base64_are_the_same_numbers(app: ClockedApp) -> None:
    """base64 holds little-endian 32-bit floats, which clients ask for by default.

    If this fails: OpenAI's client reads noise.
    """
    body = {"model": "hashing", "input": ["a fox", "a hound"]}
    reply = CreateEmbeddingResponse.model_validate(app.ok("POST", PATH, body))
    assert [each.index for each in reply.data] == [0, 1]
    assert all(len(each.embedding) == DIMENSION for each in reply.data)
    assert reply.usage.prompt_tokens == reply.usage.total_tokens > 0
    for number, text in enumerate(embed(app, body["input"], encoding_format="base64")):
        numbers = np.frombuffer(base64.b64decode(text), "<f4")
        np.testing.assert_array_equal(numbers, np.asarray(reply.data[number].embedding, np.float32))


def test_an_input_is_a_text_texts_or_tokens(app: ClockedApp) -> None:
    """Tokens of cl100k, which some clients send, mean the text that they are of."""
    tokens = vocabularies.cl100k_base().encode("a fox in the wörld")
    [text] = embed(app, "a fox in the wörld")
    assert embed(app, ["a fox in the wörld"]) == [text]
    assert embed(app, tokens) == [text]
    assert embed(app, [tokens, tokens]) == [text, text]
    assert embed(app, "a fox", dimensions=DIMENSION, user="me", input_type="query")


BAD: list[tuple[dict[str, Any], str]] = [
    ({"input": "x"}, "model"),
    ({"model": "hashing"}, "input"),
    ({"model": "hashing", "input": ""}, "input"),
    ({"model": "hashing", "input": []}, "input"),
    ({"model": "hashing", "input": ["x", ""]}, "input[1]"),
    ({"model": "hashing", "input": [100_300]}, "input"),
    ({"model": "hashing", "input": [[1], [2**31 - 1]]}, "input[1]"),
    ({"model": "hashing", "input": "x", "dimensions": 12}, "dimensions"),
    ({"model": "hashing", "input": "x", "encoding_format": "hex"}, "encoding_format"),
    ({"model": "hashing", "input": ["x"] * 2049}, "input"),
]


def test_bad_inputs_are_refused(app: ClockedApp) -> None:
    """Each is a 400 that names the field; no token reaches the table that it is not in."""
    for body, param in BAD:
        assert app.refused(400, "POST", PATH, body)["param"] == param


def test_a_refusal_names_all_that_a_field_takes(app: ClockedApp) -> None:
    """A value of none of its kinds is told each of them; an empty list that it is empty.

    If this fails: `input: []` must be a string, though lists are taken.
    """
    for given, said in (
        ({"a": 1}, "input must be a string or a list (got an object)."),
        (1, "input must be a string or a list (got 1)."),
        ([], "input must not be empty."),
        (["x", {}], "input[1] must be a string"),
    ):
        body = {"model": "hashing", "input": given}
        assert app.refused(400, "POST", PATH, body)["message"].startswith(said)


def test_an_unknown_model_is_a_404(app: ClockedApp) -> None:
    """Its name is in the message, with those that there are."""
    unknown = app.refused(404, "POST", PATH, {"model": "nope", "input": "x"})
    assert "nope" in unknown["message"]
    assert unknown["param"] == "model"
    assert app.refused(404, "GET", "/v1/models/nope")["code"] == "not_found"


def test_models_are_openais_and_llama_stacks(app: ClockedApp) -> None:
    """One list serves the clients of both APIs, which share its path."""
    listed = app.ok("GET", "/v1/models")
    assert listed["object"] == "list"
    model, extractive = listed["data"]
    assert (extractive["id"], extractive["model_type"]) == ("extractive", "llm")
    assert Model.model_validate(model).id == model["identifier"] == "hashing"
    assert model["metadata"]["embedding_dimension"] == DIMENSION
    assert app.ok("GET", "/v1/models/hashing") == model
