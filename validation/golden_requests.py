"""The requests of a golden recording: ways to sample by endpoint, streamed or not.

Nothing here is random: two recordings of one server have the same requests.
"""

from dataclasses import dataclass, replace
from typing import Any

JsonBody = dict[str, Any]
COMPLETIONS, CHAT, RESPONSES = "/v1/completions", "/v1/chat/completions", "/v1/responses"
CODE = "def mean(values):\n    return sum(values) / len(values)\n\n\ndef median(values):\n"
STORY = "The lighthouse keeper had not spoken to anyone since the autumn storms, when"
LIST = "red, green, blue, red, green, blue, red, green, blue,"
QUESTIONS = (
    "Why is the sky blue? Answer in three sentences.",
    "Write a short poem about a river in winter.",
    "List five animals and what they eat.",
    'Repeat this three times: "Peter Piper picked a peck of pickled peppers."',
)
SCHEMA: JsonBody = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
JSON_SCHEMA: JsonBody = {
    "type": "json_schema",
    "json_schema": {"name": "person", "schema": SCHEMA},
}
REGEX: JsonBody = {"type": "regex", "pattern": "[A-Z][a-z]{2,8}( [a-z]{2,8}){3,6}\\."}
WARM: JsonBody = {"temperature": 0.8, "seed": 7}
NEUTRAL: JsonBody = {"temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0, "repetition_penalty": 1}
"""What a request does not say would be the served model's own to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenRequest:
    name: str
    path: str
    body: JsonBody


def golden_requests(biased: list[int]) -> list[GoldenRequest]:
    """Return all requests; `biased` are ids of the model's vocabulary for logit biases."""
    ways = _ways(biased)
    found = [
        *(_completion(name, way, index) for index, (name, way) in enumerate(ways.items())),
        *(_chat(name, way, index) for index, (name, way) in enumerate(ways.items())),
        *_logprobs(),
        *_prompts(),
        *_responses(),
    ]
    return [replace(each, body=NEUTRAL | each.body) for each in found]


def _ways(biased: list[int]) -> dict[str, JsonBody]:
    """Return the parameters of each way to sample."""
    greedy: JsonBody = {"temperature": 0}
    return {
        "greedy": greedy,
        "greedy, no drafts": greedy | {"speculation": {"enabled": False}},
        "greedy, n-gram drafts": greedy | {"speculation": {"methods": ["ngram"]}},
        "seeded": WARM,
        "seeded, hot": {"temperature": 1.4, "seed": 12345},
        "seeded, negative": {"temperature": 1, "seed": -3},
        "seeded, no drafts": WARM | {"speculation": {"enabled": False}},
        "top-p": WARM | {"top_p": 0.7},
        "top-p, small": {"temperature": 1, "seed": 8, "top_p": 0.1},
        "top-k": WARM | {"top_k": 20},
        "top-k of 1": WARM | {"top_k": 1},
        "min-p": WARM | {"min_p": 0.1},
        "all three cuts": {"temperature": 1.2, "seed": 5, "top_p": 0.9, "top_k": 50, "min_p": 0.02},
        "presence penalty": WARM | {"presence_penalty": 1.2},
        "frequency penalty": greedy | {"frequency_penalty": 0.8},
        "repetition penalty": greedy | {"repetition_penalty": 1.3},
        "all penalties": WARM
        | {"presence_penalty": -0.5, "frequency_penalty": 0.7, "repetition_penalty": 1.1},
        "logit bias": greedy | {"logit_bias": {str(each): -100 for each in biased}},
        "logit bias, towards": WARM | {"logit_bias": {str(each): 4 for each in biased[:2]}},
        "JSON schema": WARM | {"response_format": JSON_SCHEMA},
        "JSON object": greedy | {"response_format": {"type": "json_object"}},
        "regular expression": WARM | {"response_format": REGEX},
        "three choices": WARM | {"n": 3},
        "two choices, cut and penalised": WARM | {"n": 2, "top_p": 0.8, "presence_penalty": 0.5},
        "two beams": {"temperature": 0, "beam_width": 2},
        "four beams": {"temperature": 0, "beam_width": 4, "length_penalty": 0.6, "n": 2},
        "stop string": greedy | {"stop": ["\n\n", "and the"]},
        "stop string, seeded": WARM | {"stop": " of"},
        "least tokens": WARM | {"min_tokens": 30},
        "past the end": WARM | {"ignore_eos": True, "max_tokens": 80},
        "prediction": greedy | {"prediction": {"type": "content", "content": f"{LIST} red, blue"}},
    }


def _completion(name: str, way: JsonBody, index: int) -> GoldenRequest:
    prompt = (CODE, STORY, LIST)[index % 3]
    body = {"prompt": prompt, "max_tokens": 40} | way
    return GoldenRequest(
        name=f"completion: {name}", path=COMPLETIONS, body=_streamed(body, index % 2 == 1)
    )


def _chat(name: str, way: JsonBody, index: int) -> GoldenRequest:
    messages = [{"role": "user", "content": QUESTIONS[index % len(QUESTIONS)]}]
    body = {"messages": messages, "max_tokens": 40} | way
    return GoldenRequest(name=f"chat: {name}", path=CHAT, body=_streamed(body, index % 2 == 0))


def _logprobs() -> list[GoldenRequest]:
    """Log-probabilities, whole and streamed, of every kind of distribution that has its own."""
    ways: dict[str, JsonBody] = {
        "greedy": {"temperature": 0},
        "seeded": WARM,
        "top-p": WARM | {"top_p": 0.6},
        "penalties": WARM | {"presence_penalty": 1, "frequency_penalty": 0.5},
        "JSON schema": WARM | {"response_format": JSON_SCHEMA},
    }
    made: list[GoldenRequest] = []
    for name, way in ways.items():
        for stream in (False, True):
            suffix = ", streamed" if stream else ""
            chat = {"messages": [{"role": "user", "content": QUESTIONS[0]}], "max_tokens": 32}
            chat |= {"logprobs": True, "top_logprobs": 5}
            text = {"prompt": STORY, "max_tokens": 32, "logprobs": 3}
            made.append(
                GoldenRequest(
                    name=f"chat: logprobs, {name}{suffix}",
                    path=CHAT,
                    body=_streamed(chat | way, stream),
                )
            )
            made.append(
                GoldenRequest(
                    name=f"completion: logprobs, {name}{suffix}",
                    path=COMPLETIONS,
                    body=_streamed(text | way, stream),
                )
            )
    return made


def _prompts() -> list[GoldenRequest]:
    """Prompts of other shapes: many, long, tokens, of several turns."""
    turns = [
        {"role": "system", "content": "You answer in one short sentence."},
        {"role": "user", "content": QUESTIONS[2]},
        {"role": "assistant", "content": "Cows eat grass."},
        {"role": "user", "content": "And two more, please."},
    ]
    bodies: dict[str, tuple[str, JsonBody]] = {
        "several prompts": (COMPLETIONS, {"prompt": [CODE, STORY, LIST]} | WARM),
        "a long prompt": (COMPLETIONS, {"prompt": (STORY + " " + CODE) * 20} | WARM),
        "a prompt of tokens": (COMPLETIONS, {"prompt": list(range(100, 180)), "temperature": 0}),
        "echo": (COMPLETIONS, {"prompt": STORY, "echo": True, "temperature": 0}),
        "best of": (COMPLETIONS, {"prompt": STORY, "best_of": 4, "n": 2} | WARM),
        "several turns": (CHAT, {"messages": turns} | WARM),
        "several turns, greedy": (CHAT, {"messages": turns, "temperature": 0}),
    }
    return [
        GoldenRequest(name=name, path=path, body={"max_tokens": 40} | body)
        for name, (path, body) in bodies.items()
    ]


def _responses() -> list[GoldenRequest]:
    body: JsonBody = {"input": QUESTIONS[1], "max_output_tokens": 40}
    logprobs: JsonBody = {"include": ["message.output_text.logprobs"], "top_logprobs": 3}
    ways: dict[str, JsonBody] = {
        "greedy": {"temperature": 0},
        "seeded": WARM,
        "logprobs": WARM | logprobs,
    }
    return [
        GoldenRequest(
            name=f"response: {name}{', streamed' if stream else ''}",
            path=RESPONSES,
            body=body | way | ({"stream": True} if stream else {}),
        )
        for name, way in ways.items()
        for stream in (False, True)
    ]


def _streamed(body: JsonBody, stream: bool) -> JsonBody:
    return body | ({"stream": True, "stream_options": {"include_usage": True}} if stream else {})
