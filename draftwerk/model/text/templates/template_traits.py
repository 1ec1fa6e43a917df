"""The traits of a model that its chat template shows: forms of calls and reasoning, and its
variables."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vocabularies.tokenizer_config import SPECIAL_NAMES
from draftwerk.model.text.templates.call_formats import (
    CALL_IDS,
    FIRST,
    call_message,
    derived_calls,
    example_tools,
    made_up_turns,
    shows_tools,
    with_specials,
)
from draftwerk.model.text.templates.chat_template import (
    GIVEN,
    ChatTemplate,
    TemplateExceeds,
    TemplateRefused,
)
from draftwerk.model.text.templates.content_form import Render
from draftwerk.model.text.templates.known_calls import known_form
from draftwerk.model.text.templates.own_tools import OWN_FORMATS, OwnFormat, shown_words
from draftwerk.speculative.replies.channels import channel_calls, channel_reasoning, has_channels
from draftwerk.speculative.replies.formats import AnswerMarks, CallFormat, ReasoningFormat

REASONING_WORDS = ("<think>", "enable_thinking", "reasoning_effort")
REASONING_PAIRS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought\n", "<channel|>"),
)
ANSWER_PAIRS = (
    ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    ("<answer>", "</answer>"),
    ("<response>", "</response>"),
)
"""The marks around text behind reasoning."""
SWITCHES = ("enable_thinking", "thinking", "reasoning")
"""Variables by which templates turn reasoning off."""
OURS = frozenset((*SPECIAL_NAMES, *GIVEN, "messages", "continue_final_message"))
"""Variables of templates that are not for requests to set."""
LONG_ID = "call_0123456789"
WORDED_FORMAT = "hermes"
"""How tools are described where the chat template has no form of calls."""


@contextmanager
def trial(directory: Path, template: ChatTemplate | None) -> Iterator[None]:
    """Try a template with made-up conversations while the block lasts, and with contents last.

    Raises Refused for one that takes more than it may, or that refuses what it must take.
    """
    try:
        yield
        if template is not None:
            assert template.content_forms
            template.end_trial()
    except (TemplateExceeds, TemplateRefused, TimeoutError) as error:
        raise Refused(f"{directory}: {error}") from None


def added_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the tokens that are matched whole, by their text."""
    added = tokenizer.get_added_tokens_decoder()
    return {token.content: id for id, token in added.items()}


class ToolForms(NamedTuple):
    """How a model is told of tools, and how it calls them."""

    calls: CallFormat | None = None
    """How calls are written; None where the model has no way."""
    words: OwnFormat | None = None
    """The format that describes tools and words calls, where the template does not."""
    note: str = ""
    """Where both come from, for who starts the server."""


def call_forms(
    template: ChatTemplate | None, tool_format: str, specials: dict[str, int]
) -> ToolForms:
    """Return how tools are described and calls written; a template's own tools are never worded."""
    own = OWN_FORMATS.get(tool_format)
    if template is None or tool_format == "off":
        return ToolForms(None, own)
    if own is not None:
        return _worded(
            own, specials, f"described in the words of {tool_format}, as --tool-format says"
        )
    if has_channels(template.source):
        return ToolForms(channel_calls(specials), None, f"{SHOWN}; calls in channels")
    found = derived_calls(template.render_shown, specials)
    if shows_tools(template.render_shown):
        return _shown(template.source, found, specials)
    if found is not None:
        return ToolForms(found, shown_words(found), f"{NOT_SHOWN}; calls as it shows them")
    marks = {name: each.mark for name, each in OWN_FORMATS.items() if each.mark}
    marked = (name for name, mark in marks.items() if mark in template.source)
    name = next(marked, WORDED_FORMAT)
    return _worded(
        OWN_FORMATS[name], specials, f"{NOT_SHOWN}: they are described in the words of {name}"
    )


SHOWN, NOT_SHOWN = "described by the chat template", "the chat template has no place for them"
UNKNOWN = "how the model writes calls is not known"


def _shown(source: str, found: CallFormat | None, specials: dict[str, int]) -> ToolForms:
    """Return the forms of a template that describes tools; `found` is what it shows of calls."""
    if found is not None:
        return ToolForms(found, None, f"{SHOWN}; calls as it shows them")
    if known := known_form(source, specials):
        return ToolForms(
            with_specials(known.calls, specials),
            None,
            f"{SHOWN}; calls in the form of {known.name}",
        )
    calls = with_specials(OWN_FORMATS[WORDED_FORMAT].calls, specials)
    if not all(word in source for word in (calls.trigger, '"name"', '"arguments"')):
        return ToolForms(None, None, f"{SHOWN}; {UNKNOWN}: requests with tools are refused")
    return ToolForms(calls, None, f"{SHOWN}; calls are read in the form of {WORDED_FORMAT}")


def _worded(form: OwnFormat, specials: dict[str, int], note: str) -> ToolForms:
    return ToolForms(with_specials(form.calls, specials), form, note)


def needs_short_ids(template: ChatTemplate | None) -> bool:
    """Whether a template refuses ids of calls that are not nine letters and digits."""
    if template is None:
        return False

    def takes(call_id: str) -> bool:
        called = call_message([(FIRST, {})], False)
        called["tool_calls"][0]["id"] = call_id
        result = {"role": "tool", "content": "It.", "tool_call_id": call_id, "name": FIRST}
        with suppress(TemplateRefused, ValueError):
            template.render_shown(made_up_turns("user", called, result), tools=example_tools())
            return True
        return False

    return not takes(LONG_ID) and takes(CALL_IDS[0])


def reasoning_form(
    template: ChatTemplate | None, specials: dict[str, int]
) -> ReasoningFormat | None:
    """Return how reasoning is set apart, if a template shows any."""
    if template is None:
        return None
    if has_channels(template.source):
        return channel_reasoning(specials, "reasoning_effort" in template.source)
    return derived_reasoning(template.render_shown, template.source, specials)


def derived_reasoning(
    render: Render, source: str, specials: Mapping[str, int]
) -> ReasoningFormat | None:
    """Return how a model sets its reasoning apart; None where its template shows no way."""
    with suppress(TemplateRefused, ValueError):
        default = render(made_up_turns("user"))
        pair = next((each for each in REASONING_PAIRS if _has_pair(each, source, default)), None)
        if pair is None:
            return None
        variable, turned_on = "", default
        for name in SWITCHES:
            off, on = (render(made_up_turns("user"), **{name: value}) for value in (False, True))
            if on != off:
                variable, turned_on = name, on
                break
        opened, close = pair
        answer = next((each for each in ANSWER_PAIRS if each[0] in source), None)
        return ReasoningFormat(
            opened,
            close,
            _numbered(pair, specials),
            variable,
            turned_on == default,
            _is_open(turned_on, opened, close),
            re.search(r"\breasoning_effort\b", source) is not None,
            answer=None if answer is None else AnswerMarks(*answer, _numbered(answer, specials)),
        )
    return None


def _has_pair(pair: tuple[str, str], source: str, prompt: str) -> bool:
    """Whether a template names the end of reasoning, or a prompt ends with its beginning."""
    return pair[1] in source or _is_open(prompt, *pair)


def _numbered(names: Sequence[str], specials: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    found = {name: id for name, id in specials.items() if any(name in each for each in names)}
    return tuple(sorted(found.items()))


def _is_open(prompt: str, opened: str, close: str) -> bool:
    """Whether a prompt ends inside reasoning that the template has begun."""
    return prompt.rstrip().endswith(opened) and prompt.rfind(opened) > prompt.rfind(close)


def variables_of(template: ChatTemplate | None) -> tuple[str, ...]:
    """Return the variables of a template that requests may set, in the order of their names."""
    if template is None:
        return ()
    return tuple(sorted(template.variables - OURS - template.special_tokens.keys()))


def names_reasoning(source: str) -> bool:
    """Whether a model writes down its reasoning first, by the names in its template."""
    return any(word in source for word in REASONING_WORDS)
