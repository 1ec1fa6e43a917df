"""vLLM's names for what a text must be, on all endpoints; and tokens that end it."""

import json
from typing import Any

import numpy as np
import pytest

from draftwerk.api.openai.schema import CompletionBody
from draftwerk.api.requests.grammars import text_form
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.text.grammar import Grammars
from draftwerk.model.text.vocabulary import read_tokenizer
from draftwerk.speculative.sampling import Grammar
from tests.api.conftest import BODIES, Served

SCHEMA = {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": False}
COMPACT = json.dumps(SCHEMA, separators=(",", ":"))
NAMED: list[tuple[dict[str, Any], Grammar]] = [
    ({"guided_json": SCHEMA}, Grammar("json_schema", COMPACT)),
    ({"guided_json": json.dumps(SCHEMA)}, Grammar("json_schema", COMPACT)),
    ({"guided_regex": "[a/b]+"}, Grammar("regex", "[a/b]+")),
    ({"guided_choice": ["yes", 'n"o']}, Grammar("lark", 'start: "yes" | "n\\"o"\n')),
    ({"guided_choice": ["\x7f", ""]}, Grammar("lark", 'start: "\\u007f" | ""\n')),
    ({"guided_grammar": 'start: "x"'}, Grammar("lark", 'start: "x"')),
    ({"regex": "[a/b]+"}, Grammar("regex", "[a/b]+")),
    ({"grammar": 'root ::= "x"'}, Grammar("lark", 'root ::= "x"')),
    ({"ebnf": 'root ::= "a" | "b"'}, Grammar("lark", 'root ::= "a" | "b"')),
    ({"json_schema": SCHEMA}, Grammar("json_schema", COMPACT)),
    ({"structured_outputs": {"json": SCHEMA}}, Grammar("json_schema", COMPACT)),
    ({"structured_outputs": {"choice": ["a"]}}, Grammar("lark", 'start: "a"\n')),
    ({"structured_outputs": {"json_object": True}}, Grammar("json_schema", '{"type":"object"}')),
    ({"allowed_token_ids": [7, 5, 7]}, Grammar("lark", "start: token{262144,}\ntoken: <[5,7]>\n")),
    (
        {"bad_words": ["a.b", "c"]},
        Grammar("lark", "start: TEXT\nTEXT: /(?s:.*)/ & ~/(?s:.*)(a\\.b|c)(?s:.*)/\n"),
    ),
]


@pytest.mark.parametrize("path", [path for path in BODIES if path.startswith("/v1/")][:3])
@pytest.mark.parametrize(("fields", "grammar"), NAMED, ids=lambda each: str(each)[:40])
async def test_every_name_means_a_grammar(
    served: Served, path: str, fields: dict[str, Any], grammar: Grammar
) -> None:
    reply = await served.http.post(path, json={**BODIES[path], **fields})
    assert reply.status_code == 200, reply.text
    assert served.options.sampling.grammar == grammar


@pytest.mark.parametrize("listed", [[500], [500, 501], [2, 500], [2]])
def test_no_other_token_ends_a_text_of_listed_tokens(listed: list[int]) -> None:
    body = CompletionBody(prompt="x", allowed_token_ids=listed)
    grammar = text_form(body, None, "response_format").grammar
    assert grammar is not None
    matcher = Grammars(read_tokenizer(locate(None).directory)).matcher(grammar, (0, 2))
    for count in range(20):
        bits = np.unpackbits(matcher.allowed([500] * count).view(np.uint8), bitorder="little")
        assert np.flatnonzero(bits).tolist() == listed
        if 500 not in listed:
            break


async def test_stop_tokens_reach_the_engine(served: Served) -> None:
    assert (await served.chat(stop_token_ids=[7, 5, 7])).status_code == 200
    assert served.options.stop_token_ids == (5, 7)
