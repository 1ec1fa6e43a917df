"""A model process that is killed while it computes, and the texts in spite of that."""

import os
import signal
from collections.abc import Callable
from threading import Event, Thread

from draftwerk import LLM, RequestOutput


def tokens_of(outputs: list[RequestOutput]) -> list[list[int]]:
    return [list(each.choices[0].token_ids) for each in outputs]


def check_kills(llm: LLM, batch: Callable[[], list[RequestOutput]], plain: list[list[int]]) -> None:
    """Assert that a batch has the plain texts though the target's process is killed, twice."""
    recoveries, over = llm.snapshot().models.recoveries, Event()

    def kill_while_it_works() -> None:
        while not over.wait(0.01):
            models = llm.snapshot()
            victim = models.models.processes.get("target")
            if models.load.running == len(plain) and victim:
                os.kill(victim, signal.SIGKILL)
                return

    for _ in range(2):
        killer = Thread(target=kill_while_it_works)
        killer.start()
        assert tokens_of(batch()) == plain
        over.set()
        killer.join()
        over.clear()
    assert llm.snapshot().models.recoveries > recoveries
