"""Templates of the served families: to the byte what Transformers renders, or as it refuses."""

from datetime import datetime
from functools import cache
from random import Random
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from draftwerk.model.text.templates.chat_template import (
    ChatTemplate,
    TemplateExceeds,
    TemplateRefused,
)
from draftwerk.model.text.templates.template_traits import variables_of
from tests.model.text.samples.families import (
    ASKED,
    CONVERSATIONS,
    SPECIALS,
    TEMPLATES,
    TOOLS,
    VARIABLES,
    Json,
    random_conversation,
)
from tests.support.small_tokenizers import byte_level

families = pytest.mark.parametrize("family", TEMPLATES)
REFUSED = "refused"


@cache
def transformers() -> Any:
    return PreTrainedTokenizerFast(tokenizer_object=byte_level(), **SPECIALS)


def expected(source: str, messages: list[Json], **variables: Any) -> str:
    """Return what Transformers renders, or that it refuses to."""
    asked = {"add_generation_prompt": True, **variables}
    try:
        return transformers().apply_chat_template(
            messages, chat_template=source, tokenize=False, **asked
        )
    except Exception:  # whatever a template raises
        return REFUSED


@cache
def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, SPECIALS)


def rendered(source: str, messages: list[Json], **variables: Any) -> str:
    try:
        return template(source).render(messages, **variables)
    except (TemplateExceeds, TemplateRefused):
        return REFUSED


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@families
def test_a_family_is_rendered_as_by_transformers(family: str, conversation: str) -> None:
    source, messages = TEMPLATES[family], CONVERSATIONS[conversation]
    for variables in VARIABLES.values():
        for prompted in (True, False):
            asked = {**variables, "add_generation_prompt": prompted}
            assert rendered(source, messages, **asked) == expected(source, messages, **asked)


@families
def test_a_family_takes_a_conversation(family: str) -> None:
    """What is compared above is text, not one refusal with another."""
    source = TEMPLATES[family]
    assert all(
        rendered(source, CONVERSATIONS[each]) != REFUSED for each in ("one turn", "many turns")
    )
    has_system = family != "gemma2"
    assert (rendered(source, CONVERSATIONS["system"]) != REFUSED) == has_system


@families
def test_random_conversations_are_rendered_as_by_transformers(family: str) -> None:
    rng, source = Random(family), TEMPLATES[family]
    texts = 0
    for _ in range(60):
        messages = random_conversation(rng)
        variables = dict(rng.choice(list(VARIABLES.values())))
        found = rendered(source, messages, **variables)
        assert found == expected(source, messages, **variables)
        texts += found != REFUSED
    assert texts > 3


JINJA = {
    "tojson": "{{ tools | tojson(indent=2) }}{{ tools | tojson(ensure_ascii=True) }}"
    "{{ tools | tojson(separators=(',', ':'), sort_keys=true) }}{{ '<é>' | tojson }}",
    "trimmed": "  {% if true %}\n  a\n    {%- set x = 1 +%}\n {# n #}\n b {{ x }}\n{% endif %}\n\n",
    "line ends": "a\r\nb\rc{{ '\\r\\n' }}",
    "loops": "{% for m in range(9) %}{% if m == 2 %}{% continue %}{% endif %}"
    "{% if loop.index > 5 %}{% break %}{% endif %}{{ m }}{% else %}x{% endfor %}",
    "generation": "{%- generation -%} {{ messages[0].content }} {%- endgeneration %} end",
    "dict": "{{ dict(a=1, b=2) }}{{ dict([('x', 1)]) }}{{ dict.fromkeys([1, 2], 3) }}",
    "namespace": "{% set n = namespace(a=1, self=2) %}{% set n.b = 3 %}{{ n.a + n.self + n.b }}"
    "{% set m = namespace({'c': 4}) %}{{ m.c }}",
    "hidden name": "{% set n = namespace(_a=1) %}x",
    "hidden field": "{% set n = namespace() %}{% set n.__class__ = 1 %}x",
    "dict's class": "{{ dict.__class__ }}{{ dict.mro() }}",
    "given": "{{ documents is none }}{{ tools is none }}{{ other is defined }}{{ pad_token }}|",
    "changed": "{{ messages.append(1) }}",
    "no number": "{{ 'x' | int + 'y' }}",
    "no such value": "{{ 'abc'.index('z') }}",
    "no such key": "{{ '{a}'.format(b=1) }}",
    "division": "{{ 1 // 0 }}",
    "endless": "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
    "long": "{% for i in range(999999999) %}{% endfor %}",
    "undefined": "{{ 'x' + nothing }}",
    "unlike values": "{{ [1, 'a'] | sort | join }}",
}


@pytest.mark.parametrize("source", JINJA.values(), ids=JINJA)
def test_jinja_is_that_of_transformers(source: str) -> None:
    for variables in ({}, {"tools": TOOLS}):
        assert rendered(source, ASKED, **variables) == expected(source, ASKED, **variables)


def test_what_needs_no_oracle_is_not_refused() -> None:
    faulty = {"hidden name", "hidden field", "changed", "no number", "no such value", "no such key",
              "division", "endless", "long", "undefined", "unlike values"}  # fmt: skip
    found = {name for name, source in JINJA.items() if rendered(source, ASKED) == REFUSED}
    assert found - {"dict's class"} == faulty


def test_the_day_is_todays() -> None:
    source = "{{ strftime_now('%d %b %Y') }}"
    days = {datetime.now().strftime("%d %b %Y"), rendered(source, ASKED)}
    days.add(datetime.now().strftime("%d %b %Y"))
    assert len(days) <= 2


def test_a_template_names_what_requests_may_set() -> None:
    found = {family: variables_of(template(source)) for family, source in TEMPLATES.items()}
    assert found["gemma2"] == ()
    assert found["qwen3"] == ("enable_thinking",)
    assert found["llama3"] == ("date_string", "tools_in_user_message")
    assert found["granite3"] == ("controls", "thinking")
    assert found["smollm3"] == ("enable_thinking", "xml_tools")
    assert found["harmony"] == ("reasoning_effort",)
    own = "{% if continue_final_message or add_generation_prompt %}{{ depth }}{% endif %}"
    assert variables_of(template(own)) == ("depth",)


def test_conversations_with_tools_may_have_a_template_of_their_own() -> None:
    found = ChatTemplate("plain {{ one }}", {}, "tools {{ tools | length }} {{ two }}")
    assert found.render(ASKED) == "plain "
    assert found.render(ASKED, tools=TOOLS) == "tools 2 "
    assert variables_of(found) == ("one", "two")
