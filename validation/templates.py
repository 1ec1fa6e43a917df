"""Real chat templates: what is sent to the model is, to the byte, what Transformers renders.

    DRAFTWERK_TEMPLATES=DIRECTORY python -m validation.templates [--differences]

Each `*.jinja` of the folder (llama.cpp's source has some seventy, in `models/templates`) is
rendered for sixteen conversations, without and with tools, and compared with `apply_chat_template`
of the messages as a client of Transformers would write them. A pair of refusals is equal. Where a
template has no place for tools Transformers drops them, and they are put in words here, as a line
at start says: both are counted apart. Calls that a template shows are read again in the form that
is chosen for its model.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformers import PreTrainedTokenizerFast

from draftwerk.model.text.templates.call_formats import is_read
from draftwerk.model.text.templates.chat_template import TemplateRefused
from draftwerk.model.text.templates.own_tools import has_calls
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.speculative.replies.formats import written
from draftwerk.speculative.requests.client_prompts import ChatMessage, ToolCall
from tests.support.small_tokenizers import byte_level

VARIABLE = "DRAFTWERK_TEMPLATES"
REFUSED = "(refused)"
VALUES = (True, False, "low", 2, ["x"])
"""Of options."""
GivenMessage = dict[str, Any]
TOOLS: list[GivenMessage] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f'Tells the {name} in "places" & when — größer',
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Its name."},
                    "days": {"type": "integer", "description": "How many."},
                },
                "required": ["city"],
            },
        },
    }
    for name in ("weather", "clock")
]


def turn(role: str, content: str = "", **more: Any) -> ChatMessage:
    return ChatMessage(role, content, **more)


ASK, ANSWER = turn("user", " What <now>?\n"), turn("assistant", "Grey, I'd say.")
CALL = turn("assistant", calls=(ToolCall("abcd12345", "weather", '{"city": "Köln", "days": 2}'),))
SAID = turn("assistant", "So:", calls=CALL.calls)
TWO = turn(
    "assistant",
    calls=(*CALL.calls, ToolCall("efgh67890", "clock", '{"city": "a\\"b\'c<d>"}')),
)
RESULT = turn("tool", '{"sky": "grau & naß"}', name="weather", call_id="abcd12345")
SECOND = turn("tool", "noon", name="clock", call_id="efgh67890")
SYSTEM = turn("system", "Be kind.")
PARTS = turn("user", "What? And <why>?", parts=(6, 16))
REASONED = turn("assistant", "Grey.", reasoning="Hm?\nWell.")
CONVERSATIONS: dict[str, list[ChatMessage]] = {
    "one turn": [ASK],
    "system": [SYSTEM, ASK],
    "three turns": [ASK, ANSWER, ASK],
    "five turns": [SYSTEM, ASK, ANSWER, ASK, ANSWER, ASK],
    "parts": [PARTS],
    "parts in turns": [SYSTEM, PARTS, ANSWER, PARTS],
    "parts of a system": [turn("system", "Be. Kind.", parts=(4, 9)), ASK],
    "call": [ASK, CALL, RESULT],
    "call and system": [SYSTEM, ASK, CALL, RESULT],
    "text and call": [ASK, SAID, RESULT],
    "two calls": [ASK, TWO, RESULT, SECOND],
    "answered": [ASK, CALL, RESULT, ANSWER, ASK],
    "reasoning": [ASK, REASONED, ASK],
    "reasoning and call": [
        ASK,
        turn("assistant", reasoning="Hm?", calls=CALL.calls),
        RESULT,
    ],
    "reasoned, called, answered": [
        *(ASK, turn("assistant", reasoning="Hm?", calls=CALL.calls), RESULT, REASONED, ASK)
    ],
    "odd text": [turn("user", "</think><tool_call>{{ x }}{% y %} 🦊日本 \\n")],
}


def as_client(turns: Sequence[ChatMessage], text: TextTokenizer) -> Iterator[GivenMessage]:
    """Yield turns as a client of Transformers writes them, in a form that the template takes."""
    for each in turns:
        message = text.message_of(each)
        template = text.chat_template
        form = template.content_forms.get(each.role) if template else "text"
        if form == "text" and each.parts:
            message["content"] = each.content
        if form == "parts" and isinstance(message["content"], str):
            message["content"] = [{"type": "text", "text": each.content}]
        yield message


def rendered(
    text: TextTokenizer,
    turns: Sequence[ChatMessage],
    tools: Sequence[GivenMessage],
    **options: Any,
) -> str:
    try:
        messages = [text.message_of(each) for each in turns]
        return text._render(messages, tools, options)  # pyright: ignore[reportPrivateUsage]
    except (TemplateRefused, ValueError):
        return REFUSED


def expected(
    oracle: Any,
    source: str,
    turns: list[GivenMessage],
    tools: Sequence[GivenMessage],
    **options: Any,
) -> str:
    try:
        return oracle.apply_chat_template(
            turns,
            chat_template=source,
            tools=list(tools) or None,
            tokenize=False,
            add_generation_prompt=True,
            **options,
        )
    except Exception:  # whatever a template raises
        return REFUSED


def compared(oracle: Any, path: Path, shows: bool) -> Iterator[tuple[str, str]]:
    """Yield what each conversation comes to, and its name."""
    source = path.read_text(encoding="utf-8")
    with TemporaryDirectory() as folder:
        oracle.chat_template = source
        oracle.save_pretrained(folder)
        text = TextTokenizer(Path(folder))
    print(f"{path.stem}: {text.tool_note}")
    for name, turns in CONVERSATIONS.items():
        for tools in ([], TOOLS):
            asked = f"{name}{' with tools' if tools else ''}"
            clients = list(as_client(turns, text))
            ours, theirs = rendered(text, turns, tools), expected(oracle, source, clients, tools)
            if ours == theirs:
                yield "refused by both" if ours == REFUSED else "equal", asked
            elif text.own_format is not None and any(map(has_calls, clients)):
                yield "calls in words, where the template has no place for them", asked
            elif text.own_format is not None and theirs == REFUSED:
                yield "tools in words, where Transformers cannot render them", asked
            elif text.own_format is not None and theirs == expected(oracle, source, clients, []):
                yield "tools in words, where the template shows the same without them", asked
            else:
                if shows:
                    print(f"--- {asked}\n{theirs!r}\n{ours!r}")
                yield "DIFFERENT", asked
    yield from options_compared(oracle, source, text)
    yield from calls_read(text)


def options_compared(oracle: Any, source: str, text: TextTokenizer) -> Iterator[tuple[str, str]]:
    """Yield what each option of a template comes to, at several values, and its name."""
    for name in text.variables:
        for value in VALUES:
            for said in ("five turns", "reasoned, called, answered"):
                turns, tools = CONVERSATIONS[said], [] if text.own_format else TOOLS
                if text.own_format and any(each.calls for each in turns):
                    continue
                clients = list(as_client(turns, text))
                ours = rendered(text, turns, tools, **{name: value})
                theirs = expected(oracle, source, clients, tools, **{name: value})
                kind = "option refused by both" if ours == REFUSED else "option equal"
                yield kind if ours == theirs else "OPTION DIFFERENT", f"{name}={value!r}, {said}"


def calls_read(text: TextTokenizer) -> Iterator[tuple[str, str]]:
    """Yield whether a model's calls are read as such, in the form that is chosen for it."""
    form = text.call_format
    if form is None:
        if "refused" in text.tool_note:
            yield "form not known: tools are refused", "calls"
        return
    calls: list[tuple[str, dict[str, Any]]] = [("weather", {"city": "Kö'ln", "days": 2})]
    reply = written(form, calls, "abcd12345")
    channelled = text.reasoning_format is not None and bool(text.reasoning_format.text_open)
    yield "read" if channelled or is_read(form, reply, calls) else "NOT READ", "calls"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--differences", action="store_true", help="print both texts of each")
    shows = parser.parse_args().differences
    if not (folder := os.environ.get(VARIABLE)):
        print(f"{VARIABLE} names no folder of chat templates")
        return 2
    oracle = PreTrainedTokenizerFast(
        tokenizer_object=byte_level(), bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    paths = sorted(Path(folder).glob("*.jinja"))
    counts = Counter[str]()
    for path in paths:
        found = list(compared(oracle, path, shows))
        counts.update(kind for kind, _ in found)
        for kind, asked in found:
            if kind.isupper():
                print(f"  {kind}: {asked}")
    print(f"{len(paths)} templates, {len(CONVERSATIONS)} conversations, without and with tools:")
    print(", ".join(f"{kind}: {count}" for kind, count in sorted(counts.items())))
    return int(not paths or any(kind.isupper() for kind in counts))


if __name__ == "__main__":
    sys.exit(main())
