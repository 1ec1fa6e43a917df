"""A chat template that is rendered in a process of its own."""

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

import msgspec

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.text.guarded.guard import (
    BUSY,
    GuardedProcess,
    GuardedTask,
    Limits,
    ProcessEnded,
    guard,
)
from draftwerk.model.text.templates.bounded_environment import RENDER_S
from draftwerk.model.text.templates.chat_template import (
    ChatTemplate,
    TemplateExceeds,
    TemplateMessage,
    TemplateRefused,
)
from draftwerk.model.text.templates.template_task import ABOUT, TemplateAnswer

LIMITS = Limits(cpu_s=RENDER_S + 1, memory_mib=768)
TRIAL_S, WAIT_S = 300.0, 50.0
"""For an answer on a machine that is busy: while the template is tried, and then, since a request
waits for its tokens no longer than 60 s. What a template may take is bounded by CPU time."""
SHORT_S = 0.001
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
        wait_s: float = WAIT_S,
    ) -> None:
        """Raises Refused, which names the file, for what is no template."""
        self.name = f"the chat template ({path.name})"
        self.source = source if tool_source is None else f"{source}\n{tool_source}"
        self.special_tokens = dict(special_tokens)
        about = source, self.special_tokens, tool_source
        self._task = GuardedTask("template", limits, about)
        self._process: GuardedProcess | None = None
        self._one_at_a_time = Lock()
        self._wait_s, self._wait_behind_trial_s = TRIAL_S, wait_s
        self._trial_left_s = limits.cpu_s
        """CPU time that the conversations together may take with which the template is tried."""
        try:
            answer = self._ask(ABOUT)
        except (TemplateExceeds, TimeoutError) as error:
            raise Refused(f"{path.parent}: {error}") from None
        if answer.is_broken:
            raise Refused(f"{path}: the chat template cannot be read: {answer.fault}")
        self.variables = frozenset(answer.variables)
        """The variables that the templates read."""

    def end_trial(self) -> None:
        """Let each conversation take the whole limit from now on."""
        self._trial_left_s, self._wait_s = inf, self._wait_behind_trial_s

    def render(self, messages: Sequence[TemplateMessage], **variables: Any) -> str:
        """Return the text. Raises TemplateRefused, for example for roles out of order,
        TemplateExceeds for what breaks a limit, and TimeoutError where the machine is too busy to
        tell; all name the file."""
        answer = self._ask(([*map(dict, messages)], variables))
        if answer.is_out_of_bounds:
            raise TemplateExceeds(f"{self.name}: {answer.fault}")
        if answer.fault:
            raise TemplateRefused(f"{self.name}: {answer.fault}")
        return answer.text.decode("utf-8", "surrogatepass")

    def _ask(self, given: object) -> TemplateAnswer:
        """Return what comes of it, once it has its turn."""
        until = monotonic() + self._wait_s
        if not self._one_at_a_time.acquire(timeout=self._wait_s):
            raise self._late()
        try:
            answer = self._answer(given, until)
        finally:
            self._one_at_a_time.release()
        self._trial_left_s -= 0.0 if answer is None else answer.cpu_s
        if answer is None or self._trial_left_s < 0:
            raise TemplateExceeds(f"{self.name} takes more than {self._task.limits}, or breaks")
        return answer

    def _answer(self, given: object, until: float) -> TemplateAnswer | None:
        """Return what comes of it; None of what breaks a limit. One that others ended is asked
        again. Raises TimeoutError."""
        begun = monotonic()
        for _ in range(2):
            try:
                self._process = self._process or guard().process(self._task)
                return ANSWER.decode(self._process.ask(given, max(SHORT_S, until - monotonic())))
            except (ProcessEnded, msgspec.MsgspecError):
                self._process = None
            except OSError:  # it has not answered yet, or there is room for no process
                self._process = None
                raise self._late() from None
            if monotonic() - begun > self._task.limits.cpu_s:
                break
        return None

    def _late(self) -> TimeoutError:
        return TimeoutError(f"{self.name} has no turn within {self._wait_s:g} s: {BUSY}")
