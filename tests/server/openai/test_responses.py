"""Responses: OpenAI's newest client, a scripted model, and vector stores that are searched."""

from __future__ import annotations

import json
import random
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel

from ...chat_service import USAGE, ChatService, Script, piece, said
from ..harness import live_server
from .answers import NOTES, QUESTION, add_notes, calling, searching, with_model

TOOL: Any = {"type": "file_search", "vector_store_ids": ["notes"], "max_num_results": 2}
INCLUDED: Any = ["file_search_call.results"]
REQUIRED = {
    "background", "completed_at", "created_at", "error", "frequency_penalty", "id",
    "incomplete_details", "instructions", "max_output_tokens", "max_tool_calls", "metadata",
    "model", "object", "output", "parallel_tool_calls", "presence_penalty",
    "previous_response_id", "prompt_cache_key", "reasoning", "safety_identifier", "service_tier",
    "status", "store", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p",
    "truncation", "usage", "user",
}  # fmt: skip


def ask(client: openai.OpenAI, **fields: Any) -> Response:
    """Return the response to the question, searched in the notes."""
    response: Response = client.responses.create(
        **{"model": "tiny", "input": QUESTION, "tools": [TOOL], **fields}
    )
    return response


def events_of(client: openai.OpenAI, **fields: Any) -> list[ResponseStreamEvent]:
    """Return the events of the streamed response to the question."""
    body: Any = {"model": "tiny", "input": QUESTION, "tools": [TOOL], **fields}
    return list(client.responses.create(**body, stream=True))


def test_a_whole_response(service: ChatService, answering: openai.OpenAI) -> None:
    """The model calls the search, reads its results, and cites them; the text has no markers."""
    service.scripts = [searching("sheep", "fence"), said("A fence", " [1", "].")]
    response = ask(answering, include=INCLUDED, metadata={"for": "test"})
    search, message = response.output
    assert search.type == "file_search_call"
    assert (search.status, search.queries) == ("completed", ["sheep", "fence"])
    assert search.results is not None
    assert search.results[0].text == NOTES["fence.md"]
    assert [len(search.results), search.results[0].filename] == [2, "fence.md"]
    assert response.output_text == "A fence."
    assert message.type == "message"
    part: Any = message.content[0]
    [citation] = part.annotations
    assert (citation.type, citation.filename, citation.index) == ("file_citation", "fence.md", 7)
    assert response.status == "completed"
    assert response.usage is not None
    assert response.usage.total_tokens == 2 * USAGE["total_tokens"]
    assert response.to_dict().keys() >= REQUIRED
    assert response.metadata == {"for": "test"}
    sent = service.requests[1]["messages"]
    assert [each["role"] for each in sent] == ["system", "user", "assistant", "tool"]


def test_results_are_shown_on_request_only(service: ChatService, answering: openai.OpenAI) -> None:
    """Without `include` the results are null, later too; with it a stored response has them."""
    service.scripts = [searching("sheep"), said("Oak [1].")]
    response = ask(answering)
    first: Any = response.output[0]
    assert first.results is None
    plain: Any = answering.responses.retrieve(response.id).output[0]
    assert plain.results is None
    full: Any = answering.responses.retrieve(response.id, include=INCLUDED).output[0]
    assert len(full.results) == 2


def test_a_stream(service: ChatService, answering: openai.OpenAI) -> None:
    """Events come in the order of the contract, numbered without a gap, and add up to the whole."""
    service.scripts = [searching("sheep"), said("A fence", " [1", "] and [2]", ".")]
    events = events_of(answering)
    types = [event.type.removeprefix("response.") for event in events]
    assert types[:8] == [
        "created", "in_progress", "output_item.added", "file_search_call.in_progress",
        "file_search_call.searching", "file_search_call.completed", "output_item.done",
        "output_item.added",
    ]  # fmt: skip
    assert types[8] == "content_part.added"
    assert types[-4:] == [
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    numbers = [event.sequence_number for event in events]
    assert numbers == list(range(len(events)))
    deltas = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    last: Any = events[-1]
    assert deltas == last.response.output_text == "A fence and."
    added: Any = [e for e in events if e.type == "response.output_text.annotation.added"]
    part = last.response.output[1].content[0]
    assert [e.annotation_index for e in added] == [0, 1]
    assert [e.annotation.to_dict() for e in added] == [each.to_dict() for each in part.annotations]
    assert [each.index for each in part.annotations] == [7, 11]
    with answering.responses.stream(model="tiny", input=QUESTION, tools=[TOOL]) as stream:
        list(stream)
        assert stream.get_final_response().status == "completed"


def test_the_wire_of_a_stream(service: ChatService, answering: openai.OpenAI) -> None:
    """Each event has its name, no id, and `[DONE]` is the last; a comment is no event."""
    body = {"model": "tiny", "input": "hi", "stream": True}
    text = httpx.post(f"{answering.base_url}responses", json=body, timeout=60)
    assert text.headers["content-type"] == "text/event-stream; charset=utf-8"
    *events, done = text.text.strip().split("\n\n")
    assert done == "data: [DONE]"
    for event in events:
        name, data = event.split("\n")
        assert name == f"event: {json.loads(data.removeprefix('data: '))['type']}"


def test_any_pieces_give_the_same_response(service: ChatService, answering: openai.OpenAI) -> None:
    """Text, citations and their places do not depend on how the model's stream is cut.

    If this fails: a client shows half a marker, or a citation at the wrong character.
    """
    answer = "Ein 🦊 [1] läuft [2][1], siehe 【2】.\n```\nx[1]\n```\nEnde [1, 2]"
    rng = random.Random(4)
    expected = None
    for _ in range(40):
        cuts = sorted(rng.choices(range(len(answer) + 1), k=rng.randrange(0, 9)))
        pieces = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
        service.scripts = [searching("sheep"), said(*filter(None, pieces))]
        events = events_of(answering)
        deltas = "".join(e.delta for e in events if e.type == "response.output_text.delta")
        last: Any = events[-1]
        part = last.response.output[1].content[0].to_dict()
        assert deltas == part["text"]
        expected = expected or part
        assert part == expected
    assert expected is not None
    assert expected["text"] == "Ein 🦊 läuft, siehe.\n```\nx[1]\n```\nEnde"
    indexes = [each["index"] for each in expected["annotations"]]
    assert indexes == [5, 11, 11, 18, 37, 37]


def test_what_follows_sees_the_same_sources(service: ChatService, answering: openai.OpenAI) -> None:
    """A response that continues another replays its search, and can cite what was found there."""
    service.scripts = [searching("sheep"), said("A fence [1].")]
    first = ask(answering)
    service.scripts = [said("As said [1].")]
    second = ask(answering, previous_response_id=first.id, input="Sure?", instructions="Be brief.")
    sent = service.requests[-1]["messages"]
    assert [each["role"] for each in sent] == [
        "system", "user", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip
    assert NOTES["fence.md"] in sent[3]["content"]
    assert sent[4]["content"] == "A fence [1]."
    part: Any = second.output[0].to_dict()["content"]
    assert [each["filename"] for each in part[0]["annotations"]] == ["fence.md"]
    third = ask(answering, previous_response_id=second.id, input="Really?")
    roles = [each["role"] for each in service.requests[-1]["messages"]]
    assert roles.count("user") == 3
    listed = answering.responses.input_items.list(third.id)
    contents: Any = [item.to_dict()["content"] for item in listed]
    assert contents == [[{"type": "input_text", "text": "Really?"}]]


def test_a_second_search_numbers_on(service: ChatService, answering: openai.OpenAI) -> None:
    """The sources of a later search have numbers of their own."""
    service.scripts = [searching("sheep"), searching("keys", call_id="c2"), said("Both [1] [3].")]
    response = ask(answering)
    assert [each.type for each in response.output] == [
        "file_search_call", "file_search_call", "message",
    ]  # fmt: skip
    assert "[3] Source:" in service.requests[-1]["messages"][-1]["content"]
    part: Any = response.output[2].to_dict()["content"]
    names = [each["filename"] for each in part[0]["annotations"]]
    assert names[0] == "fence.md"
    assert len(names) == 2


def test_searches_are_counted(service: ChatService, answering: openai.OpenAI) -> None:
    """After `max_tool_calls` searches the model must answer; it is told that it may not search."""
    service.scripts = [searching("sheep"), searching("keys", call_id="c2"), said("Done.")]
    response = ask(answering, max_tool_calls=1)
    assert [each.type for each in response.output] == ["file_search_call", "message"]
    assert service.requests[1]["tool_choice"] == "none"
    service.scripts = [searching("again")]
    response = ask(answering)
    assert response.status == "completed"
    assert len([e for e in response.output if e.type == "file_search_call"]) == 10


def test_a_function_call(service: ChatService, answering: openai.OpenAI) -> None:
    """A call of the client's function ends the response; its output continues it."""
    function: Any = {
        "type": "function", "name": "weather", "strict": True,
        "parameters": {"type": "object", "properties": {}},
    }  # fmt: skip
    service.scripts = [calling("weather", '{"city": "Oslo"}')]
    events = events_of(answering, tools=[function])
    deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == '{"city": "Oslo"}'
    last: Any = events[-1]
    [call] = last.response.output
    assert (call.type, call.name, call.arguments) == (
        "function_call",
        "weather",
        '{"city": "Oslo"}',
    )
    service.scripts = [said("Rain.")]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    response = ask(
        answering, tools=[function], input=[output], previous_response_id=last.response.id
    )
    assert response.output_text == "Rain."
    assert service.requests[-1]["messages"][-1]["content"] == "rain"
    with pytest.raises(openai.BadRequestError, match="call_id"):
        ask(answering, input=[output])


class Colour(BaseModel):
    """A structured answer."""

    name: str
    numbers: list[int]


def test_a_structured_answer(service: ChatService, answering: openai.OpenAI) -> None:
    """JSON stays as the model wrote it: `[1]` in it is no citation; the schema comes back."""
    service.scripts = [searching("gate"), said('{"name": "green", "num', 'bers": [1]}')]
    parsed = answering.responses.parse(
        model="tiny", input=QUESTION, tools=[TOOL], text_format=Colour
    )
    assert parsed.output_parsed == Colour(name="green", numbers=[1])
    assert service.requests[-1]["response_format"]["json_schema"]["name"] == "Colour"
    assert parsed.to_dict()["text"]["format"]["schema"]["title"] == "Colour"  # type: ignore[index]


@pytest.mark.parametrize(
    ("choice", "tools", "searches"),
    [
        ("none", None, False),
        ({"type": "file_search"}, None, True),
        ("required", None, True),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, None, False),
    ],
)
def test_tool_choice(
    service: ChatService, answering: openai.OpenAI, choice: Any, tools: Any, searches: bool
) -> None:
    """A required search is made before the model's first call; a forbidden one is not offered."""
    response = ask(answering, tool_choice=choice)
    assert [each.type for each in response.output].count("file_search_call") == searches
    [sent] = service.requests
    assert "tools" not in sent
    assert (NOTES["fence.md"] in sent["messages"][-1]["content"]) == searches


def test_several_stores_are_one_list(service: ChatService, answering: openai.OpenAI) -> None:
    """The hits of all stores are one list of `max_num_results`, best first."""
    add_notes(str(answering.base_url).removesuffix("/v1/"), "more", wool="Sheep keep warm in wool.")
    service.scripts = [searching("sheep"), said("ok")]
    tool = {**TOOL, "vector_store_ids": ["notes", "more"], "max_num_results": 3}
    first: Any = ask(answering, tools=[tool], include=INCLUDED).output[0]
    scores = [result.score for result in first.results]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert {result.filename for result in first.results} >= {"wool", "fence.md"}


def test_nothing_found_is_said(service: ChatService, answering: openai.OpenAI) -> None:
    """Filters that no chunk passes: the model is told, and a marker that it makes up is text."""
    service.scripts = [searching("sheep"), said("Oak [1].")]
    tool = {**TOOL, "filters": {"type": "eq", "key": "title", "value": "nope"}}
    response = ask(answering, tools=[tool])
    assert "found nothing" in service.requests[-1]["messages"][-1]["content"]
    part: Any = response.output[1].to_dict()["content"]
    assert (part[0]["text"], part[0]["annotations"]) == ("Oak [1].", [])


def test_the_model_never_chooses_the_store(service: ChatService, answering: openai.OpenAI) -> None:
    """Whatever else the model sends with its queries has no effect."""
    add_notes(str(answering.base_url).removesuffix("/v1/"), "secret", wool="A secret about sheep.")
    arguments = '{"queries": ["secret sheep"], "vector_store_ids": ["secret"], "filters": null}'
    service.scripts = [calling("file_search", arguments), said("ok")]
    first: Any = ask(answering, include=INCLUDED).output[0]
    assert {result.filename for result in first.results} <= NOTES.keys()


@pytest.mark.parametrize(
    "arguments", ["", "{", "[]", '{"queries": []}', '{"queries": [1]}', "null"]
)
def test_bad_arguments_of_the_model(
    service: ChatService, answering: openai.OpenAI, arguments: str
) -> None:
    """The model is told what to send, and the answer goes on."""
    service.scripts = [calling("file_search", arguments), said("ok")]
    response = ask(answering)
    assert response.output_text == "ok"
    assert '"queries"' in service.requests[-1]["messages"][-1]["content"]


def test_length_and_filter_are_incomplete(service: ChatService, answering: openai.OpenAI) -> None:
    """A text that was cut is incomplete, with the reason."""
    for reason, shown in (("length", "max_output_tokens"), ("content_filter", "content_filter")):
        service.scripts = [Script([piece("Half"), piece(finish_reason=reason)])]
        events = events_of(answering, tools=[])
        last: Any = events[-1]
        assert last.type == "response.incomplete"
        assert last.response.incomplete_details.reason == shown
        assert last.response.output[0].status == "incomplete"
        assert last.response.output_text == "Half"


def test_a_refusal(service: ChatService, answering: openai.OpenAI) -> None:
    """The words of a refusal are a part of their own."""
    refused = [piece(refusal="I can"), piece(refusal="not."), piece(finish_reason="stop")]
    service.scripts = [Script(refused)]
    events = events_of(answering, tools=[])
    assert "response.refusal.done" in [event.type for event in events]
    last: Any = events[-1]
    assert last.response.output[0].content[0].refusal == "I cannot."


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        (Script(status=500, body={}), 502, "upstream_error"),
        (Script(status=429, body={}), 429, "rate_limit_exceeded"),
        (Script(["data: garbage\n\n"]), 502, "upstream_error"),
        (
            Script(status=400, body={"error": {"code": "context_length_exceeded"}}),
            400,
            "context_length_exceeded",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_fails_at_once(
    service: ChatService,
    answering: openai.OpenAI,
    script: Script,
    status: int,
    code: str,
    stream: bool,
) -> None:
    """Streaming or not, it is an error of HTTP, with nothing of the service's words."""
    service.scripts = [script]
    with pytest.raises(openai.APIStatusError) as caught:
        ask(answering, stream=stream)
    assert (caught.value.status_code, caught.value.code) == (status, code)


def test_a_model_that_fails_in_the_middle(service: ChatService, answering: openai.OpenAI) -> None:
    """The stream ends with the failed response, and its open message is incomplete."""
    service.scripts = [Script([piece("Half"), "data: garbage\n\n"])]
    events = events_of(answering, tools=[])
    last: Any = events[-1]
    assert last.type == "response.failed"
    assert last.response.error.code == "server_error"
    assert last.response.output[0].status == "incomplete"
    with pytest.raises(openai.NotFoundError):
        answering.responses.retrieve(last.response.id)


def test_old_turns_go_if_the_client_says_so(service: ChatService, answering: openai.OpenAI) -> None:
    """`truncation: auto` drops the oldest turn when the model cannot read all."""
    too_long = Script(status=400, body={"error": {"code": "context_length_exceeded"}})
    service.scripts = [too_long, said("ok")]
    turns: Any = [
        {"role": "user", "content": "old"},
        {"role": "assistant", "content": "older"},
        {"role": "user", "content": "new"},
    ]
    response = ask(answering, input=turns, tools=[], truncation="auto")
    assert response.output_text == "ok"
    assert [each["content"] for each in service.requests[-1]["messages"]] == ["new"]
    service.scripts = [too_long]
    with pytest.raises(openai.BadRequestError) as caught:
        ask(answering, input=turns, tools=[])
    assert caught.value.param == "input"


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"model": "nope"}, 404, "model"),
        ({"model": "corral/nope"}, 404, "model"),
        ({"model": "extractive", "tools": []}, 400, "model"),
        ({"input": []}, 400, "input"),
        ({"input": [{"type": "web_search_call"}]}, 400, "input[0].type"),
        ({"input": [{"role": "robot", "content": "x"}]}, 400, "input[0]"),
        ({"input": [{"type": "item_reference", "id": "msg_x"}]}, 404, "input[0].id"),
        ({"tools": [{"type": "web_search"}]}, 400, "tools[0].type"),
        ({"tools": [{**TOOL, "vector_store_ids": ["x"]}]}, 404, "tools[0].vector_store_ids"),
        ({"tools": [{**TOOL, "filters": {"type": "eq", "key": "a"}}]}, 400,
         "tools[0].filters.value"),
        ({"tools": [{**TOOL, "ranking_options": {"score_threshold": 2}}]}, 400,
         "tools[0].ranking_options.score_threshold"),
        ({"max_tool_calls": 0}, 400, "max_tool_calls"),
        ({"temperature": 3}, 400, "temperature"),
        ({"background": True}, 400, "background"),
        ({"previous_response_id": "resp_x"}, 404, "previous_response_id"),
        ({"conversation": "x"}, 400, "conversation"),
        ({"conversation": "conv_x"}, 404, "conversation"),
        ({"previous_response_id": "resp_x", "conversation": "conv_x"}, 400, "previous_response_id"),
        ({"tool_choice": {"type": "mcp"}}, 400, "tool_choice"),
        ({"unknown": 1}, 400, "unknown"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_bad_input(
    service: ChatService, answering: openai.OpenAI, body: Any, status: int, param: str, stream: bool
) -> None:
    """It gets a 4xx that names its field, before the first byte, and reaches no model."""
    sent = {"model": "tiny", "input": QUESTION, "tools": [TOOL], "stream": stream, **body}
    response = httpx.post(f"{answering.base_url}responses", json=sent, timeout=60)
    assert (response.status_code, response.json()["error"]["param"]) == (status, param)
    assert service.requests == []


def test_files_in_the_input(service: ChatService, answering: openai.OpenAI) -> None:
    """A file, uploaded or sent along, is read by the readers of documents."""
    file = answering.files.create(
        file=("farm.md", b"# Farm\n\nTwelve sheep."), purpose="assistants"
    )
    parts: Any = [
        {"type": "input_text", "text": "How many?"},
        {"type": "input_file", "file_id": file.id},
        {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,Zml2ZQ=="},
    ]
    ask(answering, input=[{"role": "user", "content": parts}], tools=[])
    sent = service.requests[-1]["messages"][-1]["content"]
    assert "Twelve sheep." in sent
    assert "a.txt:\nfive" in sent


def test_images_for_models_that_see(service: ChatService, answering: openai.OpenAI) -> None:
    """A model that is marked as seeing gets the image; for another one it is a 400."""
    url = "data:image/png;base64,aaaa"
    parts: Any = [
        {"type": "input_text", "text": "What is it?"},
        {"type": "input_image", "image_url": url, "detail": "low"},
    ]
    message: Any = [{"role": "user", "content": parts}]
    response = ask(answering, model="seeing", tools=[], input=message)
    assert service.requests[-1]["messages"][-1]["content"] == [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
    ]
    for body in ({"input": message}, {"previous_response_id": response.id}):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(answering, **body)
        assert caught.value.code == "unsupported_value"


def test_what_is_not_stored_does_not_exist(service: ChatService, answering: openai.OpenAI) -> None:
    """`store: false` and a deletion leave nothing to get or to continue."""
    kept, unkept = ask(answering, tools=[]), ask(answering, tools=[], store=False)
    answering.responses.delete(kept.id)
    for each in (kept, unkept):
        with pytest.raises(openai.NotFoundError) as caught:
            answering.responses.retrieve(each.id)
        assert caught.value.code == "response_not_found"
        with pytest.raises(openai.NotFoundError) as caught:
            ask(answering, previous_response_id=each.id)
        assert caught.value.code == "previous_response_not_found"


def test_models_without_calls_search_always(service: ChatService, tmp_path: Any) -> None:
    """With `file_search: always` the context is in the first request, and no tool is offered."""
    config = with_model(service, answers={"file_search": "always"})
    with live_server(config, tmp_path) as url:
        add_notes(url)
        with openai.OpenAI(base_url=f"{url}/v1/openai/v1", api_key="none") as client:
            service.scripts = [said("Oak [1].")]
            response = ask(client)
            assert [each.type for each in response.output] == ["file_search_call", "message"]
            assert "tools" not in service.requests[0]
            extracted = ask(client, model="extractive")
            assert extracted.output_text.startswith("A fence keeps the sheep in.")
            part: Any = extracted.output[1].to_dict()["content"]
            assert part[0]["annotations"][0]["quote"] == "A fence keeps the sheep in."
