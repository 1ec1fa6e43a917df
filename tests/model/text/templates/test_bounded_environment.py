"""Templates that would fill the memory or go on for ever are refused; what they do is bounded."""

from itertools import count

import pytest

from draftwerk.model.text.templates.bounded_environment import RENDER_S, TOO_LARGE, TOO_MUCH
from draftwerk.model.text.templates.chat_template import (
    ChatTemplate,
    TemplateExceeds,
    TemplateRefused,
)

MANY = "{% for i in range(99999) %}"
DOUBLED = "{% set n = namespace(x=START) %}{% for i in range(99) %}{% set n.x = NEXT %}{% endfor %}"
LISTS = DOUBLED.replace("START", "['a']").replace("NEXT", "[n.x, n.x]")
LARGE = {
    "product": "{{ 'a' * 10**12 }}",
    "list": "{{ 10**12 * [1] }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "filter's width": "{{ 'a' | center(10**12) }}",
    "mapped width": "{{ ['a'] | map('center', 10**12) | list }}",
    "method's width": "{{ 'a'.ljust(10**12) }}",
    "method by its name": "{{ 'a'['ljust'](10**12) }}",
    "batch": "{{ [1] | batch(10**12, 1) | list }}",
    "indent": "{{ 'a' | indent(width=10**12, first=true) }}",
    "lines": "{{ ('a\\n' * 10**5) | indent(10**5) }}",
    "tabs": "{{ ('a\\t' * 10**5).expandtabs(10**5) }}",
    "percent": "{{ '%1000000000d' % 1 }}",
    "percent precision": "{{ '%.1000000000f' % 1 }}",
    "percent star": "{{ '%*d' % (10**9, 1) }}",
    "percent named": "{{ ('%(a)s' * 10**5) % {'a': 'b' * 10**5} }}",
    "format filter": "{{ '%1000000000d' | format(1) }}",
    "format width": "{{ '{:>1000000000}'.format(1) }}",
    "format given width": "{{ '{:>{w}}'.format(1, w=10**9) }}",
    "format map": "{{ '{a:>1000000000}'.format_map({'a': 1}) }}",
    "format fields": "{{ ('{0}' * 10**5).format('a' * 10**5) }}",
    "format conversion": LISTS + "{{ '{!r}'.format(n.x) }}",
    "replace": "{{ ('a' * 10**5).replace('a', 'b' * 10**5) }}",
    "replace filter": "{{ ('a' * 10**5) | replace('a', 'b' * 10**5) }}",
    "translate": "{{ ('a' * 10**5).translate({97: 'b' * 10**5}) }}",
    "wrapped": "{{ ('a' * 10**5) | wordwrap(1, true, 'b' * 10**5) }}",
    "joined": "{{ ('a' * 10**5).join(['b'] * 10**5) }}",
    "join filter": "{{ (['b'] * 10**5) | join('a' * 10**5) }}",
    "joined fields": "{{ ([{'a': 'b' * 10**5}] * 10**5) | join(attribute='a') }}",
    "doubled": DOUBLED.replace("START", "'a'").replace("NEXT", "n.x ~ n.x"),
    "added": DOUBLED.replace("START", "'a'").replace("NEXT", "n.x + n.x"),
    "nested": LISTS + "{{ n.x }}",
    "nested in a namespace": LISTS + "{{ n }}",
    "nested JSON": LISTS + "{{ n.x | tojson }}",
    "nested text": LISTS + "{{ n.x | string }}",
    "nested part": LISTS + "{{ n.x ~ 'a' }}",
    "printed": MANY + "{{ 'a' * 10**6 }}{% endfor %}",
}
ENDLESS = {
    "loops": 9 * MANY + 9 * "{% endfor %}",
    "filtered loops": MANY + "{% for j in range(99999) if false %}{% endfor %}{% endfor %}",
    "loops over a list within itself": LISTS
    + "{% for a in n.x recursive %}{{ loop(a) if a is not string }}{% endfor %}",
    "macros": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
    "{{ f(100) }}",
    "filters": MANY + "{{ range(99999) | sum }}{% endfor %}",
}


@pytest.mark.parametrize("source", LARGE.values(), ids=LARGE)
def test_nothing_fills_the_memory(source: str) -> None:
    with pytest.raises(TemplateExceeds) as refused:
        timeless(source).render([])
    assert str(refused.value) == TOO_LARGE


def test_all_texts_together_do_not_either() -> None:
    source = "{{ range(99999) | map('replace', '1', 'a' * 10**6) | map('length') | sum }}"
    with pytest.raises(TemplateExceeds, match=TOO_MUCH):
        timeless(source).render([])


def timeless(source: str) -> ChatTemplate:
    """Return a template for which no time passes, however slow the machine is."""
    template = ChatTemplate(source, {})
    template.environment.clock = lambda: 0.0
    return template


@pytest.mark.parametrize("source", ENDLESS.values(), ids=ENDLESS)
def test_nothing_goes_on_for_ever(source: str) -> None:
    template, asked = ChatTemplate(source, {}), count()

    def clock() -> float:
        """Return a time at which the rendering is over once it has asked for it often."""
        return RENDER_S * next(asked) / 500

    template.environment.clock = clock
    with pytest.raises(TemplateExceeds, match="longer than"):
        template.render([])
    assert next(asked) < 600
    assert timeless("{{ 'as before' }}").render([]) == "as before"


PLAIN = {
    "{{ 10**12 * 10**9 }} {{ (10**12) | string }}": f"{10**21} {10**12}",
    "{{ [10**12] | tojson(indent=1) }}": f"[\n {10**12}\n]",
    "{{ '%d' | format(10**12) }} {{ '{}'.format(10**12) }}": f"{10**12} {10**12}",
    "{{ '%5.1f|%-4s|%%' % (2.25, 'a') }}": "  2.2|a   |%",
    "{{ '{:>4}|{a!r:5}|{b[0]}'.format(1, a='x', b=[2]) }}": "   1|'x'  |2",
    "{{ ('<{}|{:>4}>' | safe).format('<', '&') }}": "<&lt;|   &amp;>",
    "{{ '{a}'.format_map({'a': 3}) }}{{ 1 ~ 'b' ~ none }}": "31bNone",
    "{{ ', '.join(['a', 'b']) }}{{ [1, 2] | join('-') }}{{ [] | join }}": "a, b1-2",
    "{{ [{'a': 1}, {'a': 2}] | join(', ', attribute='a') }}": "1, 2",
    "{{ 'a.b'.replace('.', '--') }}{{ 'a' | replace('a', 'b') }}": "a--bb",
    "{% for i in range(4) if i % 2 %}{{ loop.index }}{{ loop.length }}{% endfor %}": "1222",
    "{% macro f(a) %}<{{ a }}>{% endmacro %}{{ f(1) }}{{ [1] + [2] }}": "<1>[1, 2]",
}


@pytest.mark.parametrize(("source", "text"), PLAIN.items())
def test_what_is_small_is_what_jinja_makes_of_it(source: str, text: str) -> None:
    assert ChatTemplate(source, {}).render([]) == text


def test_a_text_is_formatted_once() -> None:
    class Formatted:
        times = 0

        def __format__(self, specification: str) -> str:
            Formatted.times += 1
            return specification

    template = ChatTemplate("{{ '{:one}'.format(x) }}{{ '{x:two}'.format_map({'x': x}) }}", {})
    template.environment.globals["x"] = Formatted()
    assert (template.render([]), Formatted.times) == ("onetwo", 2)


@pytest.mark.parametrize("given", ("", "{}, {}", "{}, a=1"))
def test_a_map_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(TemplateRefused):
        ChatTemplate("{{ 'a'.format_map(GIVEN) }}".replace("GIVEN", given), {}).render([])
