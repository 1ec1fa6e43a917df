"""Forms of calls that a chat template names and does not show, known by their markers."""

from collections.abc import Mapping

from msgspec import Struct

from draftwerk.speculative.replies.formats import ArgumentFormat, CallFormat


class KnownForm(Struct, frozen=True):
    """A form of calls, and what tells it."""

    name: str
    markers: tuple[str, ...]
    """The marks that a model of this form has in its chat template, or in its vocabulary: one of
    them."""
    calls: CallFormat


LFM2 = CallFormat(
    "python",
    "<|tool_call_start|>",
    "<|tool_call_start|>[",
    "(",
    ")",
    ", ",
    "]<|tool_call_end|>",
    arguments=ArgumentFormat(separator=", ", quote='"', python_words=True),
)
SEED_OSS = CallFormat(
    "xml",
    "<seed:tool_call>",
    "<seed:tool_call>\n<function=",
    ">\n",
    "</function>\n</seed:tool_call>",
    "\n<seed:tool_call>\n<function=",
    arguments=ArgumentFormat("<parameter=", ">", "</parameter>\n", python_words=True),
)
MISTRAL = CallFormat("json", "[TOOL_CALLS]", "[TOOL_CALLS]", "[ARGS]", "", "[TOOL_CALLS]")
GRANITE = CallFormat(
    "json",
    "<|tool_call|>",
    '<|tool_call|>[{"name": "',
    '", "arguments": ',
    "}",
    ', {"name": "',
    "]",
)
KIMI = CallFormat(
    "json",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.",
    ":",
    "<|tool_call_end|>",
    "<|tool_call_begin|>functions.",
    "<|tool_calls_section_end|>",
    id_middle="<|tool_call_argument_begin|>",
    numbers_middle=True,
)
KNOWN = (
    KnownForm("Kimi", (KIMI.id_middle,), KIMI),
    KnownForm("LFM2", (LFM2.trigger, "<|tool_list_start|>", "List of tools: ["), LFM2),
    KnownForm("Seed-OSS", (SEED_OSS.trigger,), SEED_OSS),
    KnownForm("Mistral Small", ("[ARGS]",), MISTRAL),
    KnownForm("Granite", (GRANITE.trigger,), GRANITE),
)


def known_form(source: str, specials: Mapping[str, int]) -> KnownForm | None:
    """Return the form whose marker a template or a vocabulary has; the template's goes first."""
    for names in (source, specials):
        for form in KNOWN:
            if any(marker in names for marker in form.markers):
                return form
    return None
