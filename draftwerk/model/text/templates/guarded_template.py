"""A chat template that is rendered in a process of its own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

import msgspec

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.text.guarded.guard import (
    GuardedProcess,
    GuardedTask,
    Limits,
    ProcessEnded,
    guard,
)
from draftwerk.model.text.templates.bounded_environment import RENDER_S
from draftwerk.model.text.templates.chat_template import (
    ChatTemplate,
    TemplateMessage,
    TemplateRefused,
)
from draftwerk.model.text.templates.template_task import ABOUT, TemplateAnswer

LIMITS = Limits(cpu_s=RENDER_S + 1, memory_mib=768)
WAIT_S = 60.0
"""For an answer on a machine that is busy."""
ANSWER = msgspec.msgpack.Decoder(TemplateAnswer)


class GuardedTemplate(ChatTemplate):
    """Messages to text; safe to share between threads."""

    def __init__(  # the template itself is made elsewhere
        self,
        path: Path,
        source: str,
        special_tokens: Mapping[str, str],
        tool_source: str | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        """Raises Refused, which names the file, for what is no template."""
        self.path = path
        self.source = source if tool_source is None else f"{source}\n{tool_source}"
        self.special_tokens = dict(special_tokens)
        about = source, self.special_tokens, tool_source
        self._task = GuardedTask("template", limits, about)
        self._process: GuardedProcess | None = None
        self._one_at_a_time = Lock()
        try:
            answer = self._ask(ABOUT)
        except TemplateRefused as error:
            raise Refused(str(error)) from None
        if answer.is_broken:
            raise Refused(f"{path}: the chat template's {answer.fault}")
        self.variables = frozenset(answer.variables)
        """What the templates read of what they are given."""

    def render(self, messages: Sequence[TemplateMessage], **variables: Any) -> str:
        """Return the text. Raises TemplateRefused, for example for roles out of order."""
        answer = self._ask(([*map(dict, messages)], variables))
        if answer.fault:
            raise TemplateRefused(answer.fault)
        return answer.text.decode("utf-8", "surrogatepass")

    def _ask(self, given: object) -> TemplateAnswer:
        """Return what comes of it. One that others ended is asked again."""
        with self._one_at_a_time:
            begun = monotonic()
            for _ in range(2):
                try:
                    self._process = self._process or guard().process(self._task)
                    return ANSWER.decode(self._process.ask(given, WAIT_S))
                except (ProcessEnded, msgspec.MsgspecError):
                    self._process = None
                if monotonic() - begun > self._task.limits.cpu_s:
                    break
        most = self._task.limits
        raise TemplateRefused(f"{self.path}: the chat template takes more than {most}, or breaks")
