"""A reply is the same streamed and not streamed, wherever a limit cut it."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import jiter
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk.actors.events.client_events import Delta, Ended
from draftwerk.actors.monitoring.sequence_stats import SequenceStats
from draftwerk.api.anthropic.serializer import MessageSerializer
from draftwerk.api.ollama.serializer import OllamaSerializer
from draftwerk.api.openai.chat import ChatSerializer
from draftwerk.api.openai.completions import CompletionSerializer
from draftwerk.api.openai.responses.responses_schema import ResponsesBody
from draftwerk.api.openai.responses.responses_serializer import ResponsesSerializer
from draftwerk.api.responses.serializer import GatheredChoice, ReplyMetadata, Serializer
from draftwerk.api.shared.usage import RequestMetrics, Usage
from draftwerk.speculative.replies.formats import ReplyFormat, written
from draftwerk.speculative.replies.parser import ReplyParser
from draftwerk.speculative.replies.whole_values import whole_values
from draftwerk.speculative.sampling import Sampling
from tests.api.support.agents import CALLS, THINKING

ARGUMENTS = {"city": 'Kö"ln\\', "days": [1, 25, {"x": None}], "exact": True, "deep": {"a": {}}}
REPLY = "<think>\nHm.\n</think>\n\nSo:\n" + written(
    CALLS, [("weather", ARGUMENTS), ("time_of", {}), ("weather", {"city": "b"})]
)
USAGE, METRICS = Usage(1, 2, 3), RequestMetrics(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, None, 7)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


def chat_of(chunks: list[Any]) -> Any:
    """What a chat's chunks add up to."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    reason = None
    for chunk in chunks:
        (choice,) = chunk["choices"]
        reason = choice["finish_reason"]
        delta = choice["delta"]
        for name in ("content", "reasoning_content"):
            message[name] += delta.get(name) or ""
        for call in delta.get("tool_calls") or ():
            if call["index"] == len(message["tool_calls"]):
                message["tool_calls"].append({**call["function"], "id": call["id"]})
            else:
                message["tool_calls"][call["index"]]["arguments"] += call["function"]["arguments"]
    return message, reason


def chat_reply(reply: Any) -> Any:
    (choice,) = reply["choices"]
    message = choice["message"]
    calls = [{**each["function"], "id": each["id"]} for each in message.get("tool_calls") or ()]
    said = {name: message.get(name) or "" for name in ("content", "reasoning_content")}
    return {**said, "tool_calls": calls}, choice["finish_reason"]


def completion_of(chunks: list[Any]) -> Any:
    choices = [each["choices"][0] for each in chunks]
    return "".join(each["text"] for each in choices), choices[-1]["finish_reason"]


def message_of(chunks: list[Any]) -> Any:
    """What Anthropic's own client makes of the events."""
    blocks: list[Any] = []
    stopped = 0
    for event in chunks[1:-2]:
        if event["type"] == "content_block_start":
            assert stopped == len(blocks)
            blocks.append({**event["content_block"], "json": ""})
        assert event["index"] == len(blocks) - 1
        stopped += event["type"] == "content_block_stop"
        if event["type"] == "content_block_delta":
            delta = dict(event["delta"])
            kind = delta.pop("type").removesuffix("_delta")
            ((_, text),) = delta.items()
            blocks[-1]["json" if kind == "input_json" else kind] += text
    assert stopped == len(blocks)
    for block in blocks:
        data = block.pop("json")
        if data:
            block["input"] = jiter.from_json(data.encode(), partial_mode=True)
    return blocks, chunks[-2]["delta"]


def message_reply(reply: Any) -> Any:
    return reply["content"], {name: reply[name] for name in ("stop_reason", "stop_sequence")}


def ollama_of(chunks: list[Any]) -> Any:
    messages = [each["message"] for each in chunks]
    text = "".join(each["content"] for each in messages)
    thinking = "".join(each.get("thinking", "") for each in messages)
    calls = [call for each in messages for call in each.get("tool_calls", ())]
    return text, thinking, calls, chunks[-1]["done_reason"]


def response_of(chunks: list[Any]) -> Any:
    """The last event's response; the events before it must add up to its output."""
    last = chunks[-1]["response"]
    items: list[Any] = []
    for event in chunks:
        if event["type"] == "response.output_item.added":
            items.append("")
        elif event["type"].endswith(".delta"):
            items[event["output_index"]] += event["delta"]
    said = [
        each["arguments"] if "arguments" in each else each["content"][0]["text"]
        for each in last["output"]
    ]
    assert items == said
    return response_reply(last)


def response_reply(reply: Any) -> Any:
    return reply["output"], reply["status"], reply["incomplete_details"]


Protocol = tuple[Callable[[ReplyMetadata], Serializer], Callable[[Any], Any], Callable[[Any], Any]]
PROTOCOLS: dict[str, Protocol] = {
    "chat": (ChatSerializer, chat_of, chat_reply),
    "completions": (CompletionSerializer, completion_of, lambda reply: completion_of([reply])),
    "messages": (MessageSerializer, message_of, message_reply),
    "ollama": (
        lambda each: OllamaSerializer(each, True),
        ollama_of,
        lambda each: ollama_of([each]),
    ),
    "responses": (
        lambda each: ResponsesSerializer(each, ResponsesBody(input=""), Sampling(), lambda: 0.0),
        response_of,
        response_reply,
    ),
}


def events(text: str, ends: list[int], is_parsed: bool, is_cut: bool) -> Iterator[Delta | Ended]:
    """A reply's events, its text in pieces that end there."""
    parser = ReplyParser(ReplyFormat(CALLS, THINKING))
    for start, end in zip([0, *ends], [*ends, len(text)], strict=True):
        parts = tuple(parser.push(text[start:end])) if is_parsed else ()
        yield Delta(request_id="r", choice=0, text=text[start:end], tokens=(1,), parts=parts)
    yield Ended(
        request_id="r",
        choice=0,
        finish_reason="length" if is_cut else "stop",
        text="",
        token_count=1,
        stats=SequenceStats(),
        parts=tuple(parser.flush()) if is_parsed else (),
    )


def both(name: str, said: list[Delta | Ended], is_parsed: bool) -> tuple[Any, Any]:
    """What a protocol says of some events, streamed and not."""
    make, streamed_of, reply_of = PROTOCOLS[name]
    metadata = ReplyMetadata("resp_1", 0, "m", is_parsed=is_parsed)
    serializer = make(metadata)
    chunks = serializer.first_chunks()
    for event in said:
        chunks += serializer.chunks(event, None)
    chunks += serializer.last_chunks(USAGE, METRICS)
    choice = GatheredChoice(0)
    for event in said:
        choice.add(event)
    reply = make(metadata).reply([choice], USAGE, METRICS)
    return streamed_of([plain(each) for each in chunks]), reply_of(plain(reply))


def plain(value: msgspec.Struct) -> Any:
    return json.loads(msgspec.json.encode(value))


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("is_parsed", (True, False))
def test_every_cut_is_the_same_streamed_and_not(name: str, is_parsed: bool) -> None:
    is_parsed = is_parsed and name != "completions"
    for length in range(1, len(REPLY) + 1):
        said = [*events(REPLY[:length], [*range(1, length)], is_parsed, length < len(REPLY))]
        streamed, whole = both(name, said, is_parsed)
        assert streamed == whole, REPLY[:length]


@given(st.data())
def test_every_split_is_the_same_streamed_and_not(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, len(REPLY)))
    ends = sorted(data.draw(st.sets(st.integers(0, length), max_size=8)))
    name = data.draw(st.sampled_from([*PROTOCOLS]))
    is_parsed = name != "completions"
    said = [*events(REPLY[:length], ends, is_parsed, length < len(REPLY))]
    streamed, whole = both(name, said, is_parsed)
    assert streamed == whole


def test_a_cut_call_of_a_message_has_its_whole_values() -> None:
    cut = REPLY[: REPLY.index(", 25")]
    _, (blocks, ending) = both("messages", [*events(cut, [], True, True)], True)
    assert blocks[-1]["input"] == {"city": ARGUMENTS["city"], "days": [1]}
    assert ending == {"stop_reason": "max_tokens", "stop_sequence": None}


def is_whole(arguments: str) -> bool:
    try:
        return bool(json.loads(arguments) is not None)
    except ValueError:
        return False


def test_a_call_counts_where_its_arguments_are_whole_wherever_a_stop_string_cut_it() -> None:
    for length in range(1, len(REPLY) + 1):
        said = [*events(REPLY[:length], [length // 2], True, False)]
        streamed, (message, reason) = both("chat", said, True)
        wholes = [is_whole(each["arguments"]) for each in message["tool_calls"]]
        assert streamed == (message, reason)
        assert reason == ("tool_calls" if wholes[-1:] == [True] else "stop"), REPLY[:length]
        streamed, (output, *ending) = both("responses", said, True)
        assert streamed == (output, *ending)
        statuses = [each["status"] for each in output if each["type"] == "function_call"]
        assert statuses == ["completed" if each else "incomplete" for each in wholes]
        _, (_, _, calls, _) = both("ollama", said, True)
        assert len(calls) == sum(wholes)


@given(st.dictionaries(st.text(), JSON, max_size=3), st.booleans(), st.floats(0, 1))
def test_whole_values_are_those_of_the_clients_parser(
    value: dict[str, Any], ascii_only: bool, share: float
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=1 if share < 0.5 else None)
    cut = text[: round(len(text) * share)]
    expected = jiter.from_json(cut.encode(), partial_mode=True) if cut.strip() else {}
    assert json.loads(whole_values(cut)) == expected
