"""Templates of strangers: each ends in a text or a sentence, and this process goes on."""

import os
import resource
import signal
from pathlib import Path
from threading import Event, Thread
from time import sleep
from typing import Any

import pytest

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.text.guarded.guard import Limits, guard
from draftwerk.model.text.templates.chat_template import (
    ChatTemplate,
    TemplateExceeds,
    TemplateRefused,
)
from draftwerk.model.text.templates.guarded_template import GuardedTemplate
from tests.support.hostile_templates import HOSTILE

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


def rendered(source: str) -> str:
    """Return what comes of a template, or the sentence that says why nothing does."""
    try:
        return GuardedTemplate(FILE, source, {}, limits=LIMITS).render(MESSAGES, more="!")
    except (Refused, TemplateExceeds, TemplateRefused) as error:
        assert FILE.name in str(error) and "\n" not in str(error), "a sentence"
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
    with pytest.raises(TemplateExceeds, match=r"chat_template\.jinja.* 0\.1 s or 256 MiB"):
        template.render(MESSAGES)
    assert template.render([]) == "fine"
    other = GuardedTemplate(FILE, PLAIN, {"bos_token": ""})
    thread = Thread(target=lambda: rendered(source))
    thread.start()
    assert other.render([], more="!") == "<assistant>!"
    thread.join()


def test_memory_is_bounded_whatever_a_template_may_hold() -> None:
    source = "{{ (messages[0].content * 99) | length }}"
    long = [{"role": "user", "content": "x" * 99_999}]
    template = GuardedTemplate(FILE, source, {}, limits=Limits(cpu_s=9.0, memory_mib=4))
    assert template.render([{"role": "user", "content": "x"}]) == "99"
    with pytest.raises(TemplateExceeds, match=r"chat_template\.jinja.* fill the memory"):
        template.render(long)
    wide = GuardedTemplate(FILE, source, {}, limits=Limits(cpu_s=9.0, memory_mib=64))
    assert wide.render(long) == str(99 * 99_999)


@pytest.mark.parametrize(
    "reach",
    [
        "messages.__class__.__base__.__subclasses__()",
        "''.__class__.__mro__",
        "messages[0].items.__self__.__class__",
        "(messages | attr('__class__')).__base__",
        "cycler.__init__.__globals__",
        "namespace.__init__.__globals__['os']",
        "messages.append(1)",
    ],
)
def test_a_template_reaches_nothing_behind_its_values(reach: str) -> None:
    found = rendered("{{ " + reach + " }}")
    assert found == "" or found.startswith("refused: "), found


def test_the_conversations_of_a_trial_take_together_what_one_may_take() -> None:
    source = "{% for each in range(9999) %}{% endfor %}fine"
    template = GuardedTemplate(FILE, source, {}, limits=Limits(cpu_s=0.5, memory_mib=256))
    with pytest.raises(TemplateExceeds, match=r"chat_template\.jinja.* more than 0\.5 s"):
        while template.render([]) == "fine":
            pass
    template.end_trial()
    assert template.render([]) == template.render([]) == "fine"


def test_who_waits_long_for_others_is_refused_and_holds_no_thread() -> None:
    source = "{% for each in messages %}" + HOSTILE["nested lists compared"] + "{% endfor %}fine"
    limits = Limits(cpu_s=0.2, memory_mib=256)
    template = GuardedTemplate(FILE, source, {}, limits=limits, wait_s=0.001)
    template.end_trial()
    turned_away = Event()

    def ask() -> None:
        while not turned_away.is_set():
            try:
                template.render(MESSAGES)
            except TemplateExceeds:
                pass
            except TimeoutError as error:
                assert "chat_template.jinja" in str(error) and "busy" in str(error)
                turned_away.set()

    threads = [Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert turned_away.is_set()


def test_a_process_for_which_nobody_waits_any_more_is_ended() -> None:
    source = HOSTILE["nested lists compared"]
    limits = Limits(cpu_s=1000.0, memory_mib=256)
    template = GuardedTemplate(FILE, source, {}, limits=limits, wait_s=0.1)
    template.end_trial()
    before = renderers()
    with pytest.raises(TimeoutError, match=r"chat_template\.jinja.* busy"):
        template.render(MESSAGES)
    while set(renderers()) >= set(before):
        sleep(0.01)


def test_a_template_and_a_guard_that_others_kill_come_back() -> None:
    template = GuardedTemplate(FILE, "{{ messages | length }}", {})
    assert template.render(MESSAGES) == "2"
    for pid in renderers():
        os.kill(pid, signal.SIGKILL)
    assert template.render(MESSAGES) == "2"
    guard().end()
    assert GuardedTemplate(FILE, "{{ messages | length }}", {}).render(MESSAGES) == "2"


def renderers() -> list[int]:
    """Return the processes that the guard has begun."""
    guards = [
        pid
        for pid in children(os.getpid())
        if "guard_process" in Path(f"/proc/{pid}/cmdline").read_text()
    ]
    return [child for pid in guards for child in children(pid)]


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in found.split()]
