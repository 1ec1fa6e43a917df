"""A template answers in its process: a text, or why there is none."""

import msgspec
import pytest

from draftwerk.model.text.templates.template_task import ABOUT, RenderingTask, TemplateAnswer

DECODER = msgspec.msgpack.Decoder(TemplateAnswer)


def answer(source: str, asked: object) -> TemplateAnswer:
    return DECODER.decode(RenderingTask(source, {}, None)(asked))


def test_a_template_renders_and_names_its_variables() -> None:
    source = "{% for m in messages %}{{ m.content }}{{ thinking }}{% endfor %}"
    found = answer(source, ([{"role": "user", "content": "a"}], {"thinking": "!"}))
    assert (found.text, found.fault, found.is_broken) == (b"a!", "", False)
    assert "thinking" in answer(source, ABOUT).variables


@pytest.mark.parametrize("source", ["{% for %}", "{{ 1 +* }}"])
def test_what_is_no_template_is_broken_and_says_where(source: str) -> None:
    found = answer(source, ([], {}))
    assert found.is_broken and found.fault.startswith("line 1: ")


def test_a_template_that_refuses_is_not_broken() -> None:
    found = answer("{{ raise_exception('no system') }}", ([], {}))
    assert not found.is_broken and "no system" in found.fault
