"""What a chat template shows of its model: forms of calls and reasoning, and its variables."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress

from tokenizers import Tokenizer

from draftwerk.model.text.templates.call_formats import (
    Render,
    derived_calls,
    made_up_turns,
    with_specials,
)
from draftwerk.model.text.templates.chat_template import GIVEN, ChatTemplate, TemplateRefused
from draftwerk.model.text.templates.own_tools import OWN_FORMATS, OwnFormat
from draftwerk.model.text.templates.template_file import SPECIAL_NAMES
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
"""What stands around text behind reasoning."""
SWITCHES = ("enable_thinking", "thinking", "reasoning")
"""Variables by which templates turn reasoning off."""
OURS = frozenset((*SPECIAL_NAMES, *GIVEN, "messages"))
"""Variables of templates that are not for requests to set."""
WORDED_FORMAT = "hermes"
"""How tools are described where the chat template has no form of calls."""


def added_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the tokens that are matched whole, by their text."""
    added = tokenizer.get_added_tokens_decoder()
    return {token.content: id for id, token in added.items()}


def call_forms(
    template: ChatTemplate | None, tool_format: str, specials: dict[str, int]
) -> tuple[CallFormat | None, OwnFormat | None]:
    """Return how calls are written, and what describes tools where the template does not."""
    own = OWN_FORMATS.get(tool_format)
    if template is None or tool_format == "off":
        return None, own
    if own is not None:
        return with_specials(own.calls, specials), own
    if has_channels(template.source):
        return channel_calls(specials), None
    found = derived_calls(template.render, specials)
    if found is not None:
        return found, None
    marked = [each for each in OWN_FORMATS.values() if each.mark and each.mark in template.source]
    worded = marked[0] if marked else OWN_FORMATS[WORDED_FORMAT]
    return with_specials(worded.calls, specials), worded


def reasoning_form(
    template: ChatTemplate | None, specials: dict[str, int]
) -> ReasoningFormat | None:
    """Return how reasoning is set apart, if a template shows any."""
    if template is None:
        return None
    if has_channels(template.source):
        return channel_reasoning(specials, "reasoning_effort" in template.source)
    return derived_reasoning(template.render, template.source, specials)


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
