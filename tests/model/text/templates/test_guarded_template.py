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
