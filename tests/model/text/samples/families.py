"""Chat templates in the forms of the families that are served, and conversations for them."""

from pathlib import Path
from random import Random
from typing import Any

Json = dict[str, Any]
FOLDER = Path(__file__).parent / "templates"
TEMPLATES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.jinja"))}
"""As their publishers' in features and in what they write; written for these tests."""
SPECIALS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
TOOLS: list[Json] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": 'Tells <how> it\'s in a "city" & when — größer',
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Its name."},
                    "unit": {"type": "string", "enum": ["C", "F"]},
                    "days": {"type": "array", "items": {"type": "integer"}},
                },
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {"name": "clock", "description": "", "parameters": {"type": "object"}},
    },
]
DOCUMENTS: list[Json] = [{"title": "One", "text": "Köln's <rain>"}, {"title": "2", "text": "é\n"}]
SCRAPS = (
    "Hello", " ", "\n", "\n\n", "</think>", "<think>", "<tool_call>", "é", "日本", "🦊", "'", '"',
    "\\", "<b>&amp;", "{{ x }}", "{% y %}", "/no_think", "<tool_response>", "</tool_response>",
)  # fmt: skip
ARGUMENTS: tuple[Json, ...] = (
    {"city": "Köln"},
    {"city": "a\"b'c<d>", "days": [1, 2], "unit": None},
    {"city": "", "deep": {"x": [True, 1.5, "é"]}, "days": []},
    {},
)


def call(name: str, arguments: Any, call_id: str = "abcd12345") -> Json:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def turn(role: str, content: str | None, **more: Any) -> Json:
    return {"role": role, "content": content, **more}


ASKED = [turn("user", "What <now>?")]
CALLED = turn("assistant", "", tool_calls=[call("weather", {"city": "Köln"})])
RESULT = turn("tool", '{"sky": "grau & naß"}', name="weather", tool_call_id="abcd12345")
CONVERSATIONS: dict[str, list[Json]] = {
    "one turn": ASKED,
    "system": [turn("system", " Be kind. "), *ASKED],
    "many turns": [*ASKED, turn("assistant", " This.\n"), turn("user", "é🦊\n")],
    "call": [*ASKED, CALLED],
    "result": [turn("system", "Be."), *ASKED, CALLED, RESULT],
    "answered": [*ASKED, CALLED, RESULT, turn("assistant", "Grey."), turn("user", "And?")],
    "two calls": [
        *ASKED,
        turn(
            "assistant",
            "So:",
            tool_calls=[call("weather", ARGUMENTS[1]), call("clock", {}, "efgh67890")],
        ),
        RESULT,
        turn("tool", "noon", name="clock", tool_call_id="efgh67890"),
    ],
    "no content": [*ASKED, {**CALLED, "content": None}, RESULT],
    "text arguments": [
        *ASKED,
        turn("assistant", "", tool_calls=[call("weather", '{"city": "é"}')]),
    ],
    "reasoning": [*ASKED, turn("assistant", "This.", reasoning_content="Hm?\n"), *ASKED],
    "thinking": [*ASKED, turn("assistant", "This.", thinking="Hm?")],
    "reasoning and call": [*ASKED, {**CALLED, "reasoning": "Hm?"}, RESULT],
    "no reasoning": [*ASKED, turn("assistant", "This.", reasoning_content=None), *ASKED],
    "told reasoning": [*ASKED, turn("assistant", "<think>\nHm?\n</think>\n\nThis."), *ASKED],
    "answer first": [turn("assistant", "I?"), *ASKED],
    "parts": [turn("user", [{"type": "text", "text": " What"}, {"type": "text", "text": "?"}])],  # type: ignore[arg-type]
    "unknown role": [turn("judge", "No.")],
}
VARIABLES: dict[str, Json] = {
    "none": {},
    "tools": {"tools": TOOLS},
    "thinking": {"enable_thinking": True, "thinking": True, "reasoning_effort": "high"},
    "no thinking": {"enable_thinking": False, "reasoning": False, "skip_think": False},
    "documents": {"documents": DOCUMENTS, "tools": TOOLS[:1]},
    "date": {"date_string": "1 May 2024", "controls": {"length": "long"}, "bos_token": "<other>"},
}


def random_conversation(rng: Random) -> list[Json]:
    """Return turns in an order that models know, mostly."""
    found = [turn("system", _text(rng))] if rng.random() < 0.4 else []
    for _ in range(rng.randint(1, 3)):
        found.append(turn("user", _text(rng)))
        if rng.random() < 0.4:
            calls = [
                call(rng.choice(("weather", "clock")), rng.choice(ARGUMENTS), f"abcd1234{number}")
                for number in range(rng.choice((1, 1, 2)))
            ]
            found.append(turn("assistant", rng.choice(("", None, _text(rng))), tool_calls=calls))
            found += [turn("tool", _text(rng), tool_call_id=each["id"]) for each in calls]
        if rng.random() < 0.8:
            found.append(turn("assistant", _text(rng)))
            if rng.random() < 0.4:
                name = rng.choice(("reasoning_content", "thinking", "reasoning"))
                found[-1][name] = rng.choice((None, "", _text(rng)))
    return found


def _text(rng: Random) -> str:
    return "".join(rng.choice(SCRAPS) for _ in range(rng.randint(0, 6)))
