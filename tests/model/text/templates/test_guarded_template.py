"""Templates of strangers: each ends in a text or a sentence, and this process goes on."""

import os
import resource
import signal
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.text.guarded.guard import Limits, guard
from draftwerk.model.text.templates.chat_template import ChatTemplate, TemplateRefused
from draftwerk.model.text.templates.guarded_template import GuardedTemplate

FILE = Path("chat_template.jinja")
LIMITS = Limits(cpu_s=0.1, memory_mib=256)
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "Hi \ud800 🙂", "n": 2**80, "x": [1.5, None, True]},
    {"role": "assistant", "content": "Hello!"},
]
PLAIN = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ m.n }}"
    "{{ m.x | default(7) | tojson }}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}{{ more }}"
)
NESTED = (
    "{% set ns = namespace(a=[], b=[]) %}{% for i in range(40) %}"
    "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}"
)
DOUBLED = (
    "{% set ns = namespace(x=['a' * 4096]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}"
)
WIDE = "{% set a = range(99999) | list %}"
HOSTILE = {
    **{
        f"nested lists {name}": NESTED + use
        for name, use in {
            "compared": "{{ ns.a == ns.b }}",
            "ordered": "{{ ns.a < ns.b }}",
            "shown": "{{ ns.a }}",
            "as text": "{{ ns.a | string | length }}",
            "as JSON": "{{ ns.a | tojson }}",
            "looked into": "{{ [1] in ns.a }}",
            "sorted": "{{ [ns.a, ns.a] | sort }}",
            "unique": "{{ [ns.a, ns.a] | unique | list }}",
            "grouped": "{{ [ns, ns] | groupby('a') | list }}",
            "summed": "{{ ns.a | sum(start=[]) }}",
            "joined": "{{ ns.a | join }}",
            "printed": "{{ ns.a | pprint }}",
        }.items()
    },
    **{
        f"large lists {name}": WIDE + use
        for name, use in {
            "summed": "{% for i in range(9999) %}{{ a | sum }}{% endfor %}",
            "mapped": "{{ a | map('string') | map('length') | sum }}" * 400,
            "grouped": "{{ a | map('string') | groupby('0') | list | length }}" * 400,
            "multiplied": "{{ (a * 99999) | length }}",
            "sorted": "{{ a | sort(reverse=true) | sort | sort(reverse=true) | length }}" * 900,
            "found in": "{{ a | select('in', a) | list | length }}",
            "batched": "{{ a | batch(1) | list | batch(1) | list | length }}" * 400,
            "kept": "{% set ns = namespace(k=[]) %}{% for i in a %}"
            "{% set ns.k = ns.k + [a | list] %}{% endfor %}",
            "unique": "{{ a | map('string') | unique | list | length }}" * 400,
        }.items()
    },
    "doubled lists": DOUBLED + "{% endfor %}",
    "doubled texts": DOUBLED.replace("['a' * 4096]", "'a'") + "{% endfor %}",
    "bytes": "{% set b = ('a' * 9999999).encode() %}{{ (b * 9999) | length }}",
    "bytes joined": "{% set b = ('a' * 9999999).encode() %}{{ b.join([b] * 9999) | length }}",
    "four bytes each": "{% set ns = namespace(k=[]) %}{% for i in range(999) %}"
    "{% set ns.k = ns.k + ['🙂' * 999999] %}{% endfor %}{{ ns.k | length }}",
    "a power": "{{ 9 ** 9 ** 9 }}",
    "a shifted number": "{{ 2 ** 9999999 * 3 ** 9999999 }}",
    "a number as text": "{{ 10 ** 9999999 }}",
    "a width": "{{ '%999999999d' % 1 }}",
    "a format": "{{ '{:>999999999}'.format(1) }}",
    "centred": "{{ 'a'.center(999999999) }}",
    "filled": "{{ 'a'.zfill(999999999) }}",
    "a range of ranges": "{% for i in range(99999) %}{% for j in range(99999) %}"
    "{% endfor %}{% endfor %}",
    "a macro that calls itself": "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "a macro that calls itself twice": "{% macro f(x) %}{% if x %}{{ f(x - 1) }}{{ f(x - 1) }}"
    "{% endif %}{% endmacro %}{{ f(40) }}",
    "a loop that calls itself": "{% for x in [1] recursive %}{{ loop([x]) }}{% endfor %}",
    "deep brackets": "{{ " + "(" * 9000 + "1" + ")" * 9000 + " }}",
    "deep lists": "{{ " + "[" * 9000 + "]" * 9000 + " }}",
    "deep blocks": "{% if 1 %}" * 9000 + "{% endif %}" * 9000,
    "deep nots": "{{ " + "not " * 90000 + "1 }}",
    "long sums": "{{ " + "1 + " * 90000 + "1 }}",
    "a class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ cycler.__init__.__globals__ }}",
    "an import": "{% import 'os' as os %}{{ os }}",
    "a file": "{% include '/etc/passwd' %}",
    "no template": "{% for %}",
    "no end": "{% for x in messages %}",
    "an unknown filter": "{{ messages | shell }}",
    "an unknown tag": "{% run 'ls' %}",
    "its own refusal": "{{ raise_exception('not \ud800 so') }}",
    "nothing": "{{ messages.nothing.at.all }}",
    "wrapped": "{{ ('a ' * 999999) | wordwrap(1) | wordwrap(1) | length }}" * 90,
    "indented": "{{ ('\n' * 999999) | indent(9999) }}",
    "replaced": "{{ ('a' * 999999) | replace('a', 'a' * 999999) }}",
    "quoted": "{{ ('<' * 9999999) | urlize | escape | length }}",
    "sliced": "{{ range(99999) | slice(99999) | list | slice(99999) | list | length }}" * 9,
    "titled": "{{ ('a ' * 8000000) | title | title | capitalize | striptags | length }}" * 20,
    "paired": "{{ dict.fromkeys(range(99999), range(99999) | list) | tojson | length }}",
    "items": "{{ dict(a=1).items() | list * 99999999 }}",
}


def rendered(source: str) -> str:
    """Return what comes of a template, or the sentence that says why nothing does."""
    try:
        return GuardedTemplate(FILE, source, {}, limits=LIMITS).render(MESSAGES, more="!")
    except (Refused, TemplateRefused) as error:
        assert str(error), "a sentence"
        return f"refused: {error}"


def test_it_renders_as_in_this_process_and_knows_its_variables() -> None:
    special = {"bos_token": "<s>"}
    ours, theirs = ChatTemplate(PLAIN, special), GuardedTemplate(FILE, PLAIN, special)
    assert theirs.render(MESSAGES, more="!") == ours.render(MESSAGES, more="!")
    assert theirs.variables == ours.variables and theirs.source == ours.source
    refusing = GuardedTemplate(FILE, "{{ raise_exception('roles must alternate') }}", {})
    with pytest.raises(TemplateRefused, match="roles must alternate"):
        refusing.render(MESSAGES)


def test_there_are_sixty_hostile_templates() -> None:
    assert len(HOSTILE) >= 60


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_template_ends_in_a_sentence_and_this_process_goes_on(kind: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = rendered(HOSTILE[kind])
    assert len(found) < 2**20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 * 1024, "KiB"


def test_what_breaks_a_limit_is_refused_with_the_file_and_the_next_one_is_rendered() -> None:
    source = "{% if messages %}" + HOSTILE["nested lists compared"] + "{% endif %}fine"
    template = GuardedTemplate(FILE, source, {}, limits=LIMITS)
    with pytest.raises(TemplateRefused, match=r"chat_template\.jinja: .* 0\.1 s or 256 MiB"):
        template.render(MESSAGES)
    assert template.render([]) == "fine"
    other = GuardedTemplate(FILE, PLAIN, {"bos_token": ""})
    thread = Thread(target=lambda: rendered(source))
    thread.start()
    assert other.render([], more="!") == "<assistant>!"
    thread.join()


def test_a_template_and_a_guard_that_others_kill_come_back() -> None:
    template = GuardedTemplate(FILE, "{{ messages | length }}", {})
    assert template.render(MESSAGES) == "2"
    for pid in children(os.getpid()):
        if "guard_process" in Path(f"/proc/{pid}/cmdline").read_text():
            for child in children(pid):
                os.kill(child, signal.SIGKILL)
    assert template.render(MESSAGES) == "2"
    guard().end()
    assert GuardedTemplate(FILE, "{{ messages | length }}", {}).render(MESSAGES) == "2"


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in found.split()]
