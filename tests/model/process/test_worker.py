"""A model process's loop: it answers work in order, and checks what it knows once none comes."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from threading import Event

import msgspec
import pytest

from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.process.measuring import StepSize
from draftwerk.model.process.role import ModelWorker, WorkerState, build_role
from draftwerk.model.process.step_trials import verification
from draftwerk.model.process.worker import Pipe, serve
from draftwerk.speculative.protocol.frames import HEADER, FrameKind, Ready, encode, frame
from draftwerk.speculative.rounds import Round
from tests.support.rounds import make_round
from tests.support.tiny_models import save_tiny

WORK = frame(FrameKind.WORK, encode(make_round(round_id=7)))
READY = Ready(device="cpu", attention="none", exact=True)


def role_of(check: Callable[[], None]) -> ModelWorker:
    return ModelWorker(Round, lambda: WorkerState(lambda round_: round_.round_id, check), READY)


class Checks:
    """Counts checks; from the first one on, the input may end."""

    def __init__(self) -> None:
        self.count, self.done = 0, Event()

    def __call__(self) -> None:
        self.count += 1
        self.done.set()


def frames_of(data: bytes) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while data:
        kind, length = HEADER.unpack_from(data)
        found.append((kind, data[HEADER.size : HEADER.size + length]))
        data = data[HEADER.size + length :]
    return found


def test_work_is_answered_in_order_and_never_checked_in_between() -> None:
    answers, checks = BytesIO(), Checks()
    serve(BytesIO(WORK + frame(FrameKind.RESET) + WORK), Pipe(answers), role_of(checks), 60.0)
    assert frames_of(answers.getvalue()) == [(FrameKind.DONE, encode(7))] * 2
    assert checks.count == 0


class Idle(BytesIO):
    """An input that ends only once an event is set, and a while after it."""

    def __init__(self, data: bytes, ends: Event) -> None:
        super().__init__(data)
        self._ends = ends

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        if not found:
            self._ends.wait(60)
            Event().wait(0.1)
        return found


def test_without_work_what_is_known_is_checked_once() -> None:
    checks = Checks()
    serve(Idle(WORK, checks.done), Pipe(BytesIO()), role_of(checks), 0.01)
    assert checks.count == 1, "the idle time after it is longer than ten times the limit"


def test_before_any_work_nothing_is_checked() -> None:
    checks, ended = Checks(), Event()
    ended.set()
    serve(Idle(b"", ended), Pipe(BytesIO()), role_of(checks), 0.01)
    assert checks.count == 0


def test_a_failed_check_ends_the_process() -> None:
    failed = Event()

    def fail() -> None:
        failed.set()
        raise AssertionError("a sequence ends elsewhere")

    with pytest.raises(AssertionError, match="ends elsewhere"):
        serve(Idle(WORK, failed), Pipe(BytesIO()), role_of(fail), 0.01)


@pytest.mark.parametrize("sources", [None, ("ngram",), ("draft",)])
def test_a_target_is_sound_after_a_step_and_notices_what_it_lost(
    tmp_path: Path, sources: tuple[str, ...] | None
) -> None:
    save_tiny(tmp_path, "llama")
    options = ModelOptions(
        source=str(tmp_path),
        dtype="fp32",
        block_count=16,
        block_size=16,
        measures=False,
    )
    draft = options if sources == ("draft",) else None
    options = msgspec.structs.replace(options, sources=sources, draft=draft)
    model = build_role("target", msgspec.json.encode(options), lambda _: None)
    model.step(verification(StepSize(4, 16), 16))
    model.check()
    runner = model.computing.check.__self__
    if sources is None:
        runner.cached_sequences.sequences[0].prompt_count = 10**6
    else:
        lost = runner.runner if draft is None else runner.drafter
        lost.cached_sequences.sequences.clear()
    with pytest.raises(AssertionError):
        model.check()
