"""Chat completions that search: vector DBs as models, and the tool file_search."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion
from openai.types.chat.chat_completion_message import Annotation

from ...chat_service import USAGE, ChatService, said
from ..harness import Json, live_server
from .answers import NOTES, QUESTION, add_notes, searching, with_model

ASKED: Any = [{"role": "user", "content": QUESTION}]


def served(service: ChatService, home: Path, **sections: Any) -> Iterator[openai.OpenAI]:
    """Yield OpenAI's client of a server with the notes and the service's model."""
    with (
        live_server(with_model(service, **sections), home) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as made,
    ):
        add_notes(url)
        yield made


def citations_of(answer: ChatCompletion) -> list[Json]:
    """Return the citations of a chat's answer."""
    message: Any = answer.choices[0].message.to_dict()
    citations: list[Json] = message["provider_specific_fields"]["citations"]
    return citations


def test_a_vector_db_is_a_model(service: ChatService, answering: openai.OpenAI) -> None:
    """Its context is before the question; what the model cites is numbered, and listed below.

    If this fails: a client that only knows chat cannot show where an answer comes from.
    """
    service.scripts = [said("The fen", "ce does [", "1]", ".")]
    assert "corral/notes" in {model.id for model in answering.models.list()}
    answer = answering.chat.completions.create(
        model="corral/notes", messages=ASKED, temperature=0.5
    )
    [sent] = service.requests
    assert sent["model"] == "tiny"
    assert sent["temperature"] == 0.5
    assert "tools" not in sent
    asked = sent["messages"][-1]["content"]
    assert asked.index(NOTES["fence.md"]) < asked.index("\n" + QUESTION)
    text = answer.choices[0].message.content or ""
    assert text.startswith("The fence does [1].\n\nSources:\n\n- [1] fence.md")
    assert "keys.md" not in text
    [citation] = citations_of(answer)
    assert (citation["filename"], citation["index"]) == ("fence.md", 14)
    assert citation["quote"] == NOTES["fence.md"]
    assert answer.model == "corral/notes"
    assert answer.usage is not None
    assert answer.usage.total_tokens == USAGE["total_tokens"]


def test_a_stream_adds_up_to_the_whole(service: ChatService, answering: openai.OpenAI) -> None:
    """The pieces of the streamed answer are the answer, and end with its citations."""
    service.scripts = [said("Oak [", "1] and", " green [2", "].")]
    whole = answering.chat.completions.create(model="corral/notes", messages=ASKED)
    with answering.chat.completions.create(
        model="corral/notes", messages=ASKED, stream=True
    ) as got:
        chunks = [chunk.to_dict() for chunk in got]
    deltas: Any = [chunk["choices"][0]["delta"] for chunk in chunks]  # type: ignore[index]
    assert "".join(d.get("content") or "" for d in deltas) == whole.choices[0].message.content
    assert deltas[-1]["provider_specific_fields"]["citations"] == citations_of(whole)
    assert len(citations_of(whole)) == 2


def test_sources_can_be_left_out_of_the_text(service: ChatService, tmp_path: Path) -> None:
    """With `numbered_sources: false` only the citations name the sources."""
    service.scripts = [said("Oak [1].")]
    for client in served(service, tmp_path, answers={"numbered_sources": False}):
        answer = client.chat.completions.create(model="corral/notes", messages=ASKED)
        assert answer.choices[0].message.content == "Oak."
        assert len(citations_of(answer)) == 1


def test_annotations_are_addresses(service: ChatService, answering: openai.OpenAI) -> None:
    """A source with an address is an annotation of OpenAI's one type, any other source is not.

    If this fails: a client that validates chats, as LiteLLM does, refuses the answer.
    """
    service.scripts = [said("Oak [1].")]
    whole = answering.chat.completions.create(model="corral/notes", messages=ASKED)
    assert whole.choices[0].message.annotations is None
    url = "https://example.com/fence"
    chunk = {"content": "Oak.", "metadata": {"document_id": "d", "title": "Fences", "url": url}}
    with httpx.Client(base_url=str(answering.base_url), timeout=60) as http:
        http.post("vector-dbs", json={"vector_db_id": "web", "embedding_model": "hashing"})
        body = {"vector_db_id": "web", "chunks": [chunk]}
        http.post("vector-io/insert", json=body).raise_for_status()
    answer = answering.chat.completions.create(model="corral/web", messages=ASKED)
    [found] = answer.choices[0].message.annotations or []
    Annotation.model_validate(found.to_dict(), strict=True)
    cited = found.url_citation
    assert (cited.url, cited.title, cited.start_index) == (url, "Fences", 3)
    assert citations_of(answer)[0]["quote"] == "Oak."


def test_a_later_question_is_searched_as_a_whole_one(
    service: ChatService, answering: openai.OpenAI
) -> None:
    """The model rewrites a question that follows others, and the rewriting is searched."""
    service.scripts = [said("paint of the gate"), said("Green [1].")]
    messages: Any = [
        {"role": "system", "content": "Be brief."},
        *ASKED,
        {"role": "assistant", "content": "The fence."},
        {"role": "user", "content": "And its colour?"},
    ]
    answer = answering.chat.completions.create(model="corral/notes", messages=messages)
    rewriting, asked = service.requests
    assert "The fence." in rewriting["messages"][0]["content"]
    assert asked["messages"][0]["content"].startswith("Be brief.\n\n")
    assert "gate.md" in (answer.choices[0].message.content or "")


def test_the_default_answerer_needs_no_language_model(service: ChatService, tmp_path: Path) -> None:
    """The model that quotes answers with a sentence of a source, whole and in its words."""
    settings = {"model": "extractive", "numbered_sources": False}
    for client in served(service, tmp_path, answers=settings):
        answer = client.chat.completions.create(model="corral/notes", messages=ASKED)
        text = answer.choices[0].message.content or ""
        assert text.startswith("A fence keeps the sheep in.")
        first = citations_of(answer)[0]
        assert first["quote"] == "A fence keeps the sheep in."
        assert NOTES["fence.md"][first["char_start"] : first["char_end"]] == first["quote"]
        assert service.requests == []
        with pytest.raises(openai.BadRequestError, match="corral/ID"):
            client.chat.completions.create(model="extractive", messages=ASKED)


def test_the_tool_file_search(service: ChatService, answering: openai.OpenAI) -> None:
    """The tool is Corral's: the service sees a function, and the client gets the hits."""
    service.scripts = [searching("sheep fence"), said("Oak [1].")]
    tool: Any = {"type": "file_search", "vector_store_ids": ["notes"], "max_num_results": 2}
    answer = answering.chat.completions.create(model="tiny", messages=ASKED, tools=[tool])
    first, second = service.requests
    assert [each["function"]["name"] for each in first["tools"]] == ["file_search"]
    assert second["messages"][-1]["role"] == "tool"
    assert NOTES["fence.md"] in second["messages"][-1]["content"]
    message: Any = answer.choices[0].message.to_dict()
    results = message["provider_specific_fields"]["search_results"]
    assert len(results) == 2
    assert results[0]["text"] == NOTES["fence.md"]
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 2 * USAGE["total_tokens"]


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"model": "corral/nope"}, 404, "model"),
        ({"model": "corral/notes+nope"}, 404, "model"),
        ({"tools": [{"type": "file_search", "vector_store_ids": ["nope"]}]}, 404,
         "tools[0].vector_store_ids"),
        ({"tools": [{"type": "file_search", "vector_store_ids": []}]}, 400,
         "tools[0].vector_store_ids"),
        ({"tools": [{"type": "file_search", "vector_store_ids": ["notes"], "max_num_results": 51}]},
         400, "tools[0].max_num_results"),
        ({"tools": [{"type": "file_search", "vector_store_ids": ["notes"]}] * 2}, 400, "tools[1]"),
    ],
)  # fmt: skip
def test_bad_input(
    service: ChatService, answering: openai.OpenAI, body: Any, status: int, param: str
) -> None:
    """It gets a 4xx that names its field, and reaches no service."""
    with pytest.raises(openai.APIStatusError) as caught:
        answering.chat.completions.create(**{"model": "tiny", "messages": ASKED, **body})
    assert (caught.value.status_code, caught.value.param) == (status, param)
    assert service.requests == []
