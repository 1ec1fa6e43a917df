"""The next deadline is that of a request that waits for its first token."""

from math import inf
from types import SimpleNamespace
from typing import Any

from draftwerk.speculative.options.service.rejections import EXPIRED, Rejections
from draftwerk.speculative.requests.slo import Deadlines


def waiting(expires_s: float, begun: bool = False, cancelled: bool = False) -> Any:
    times = Deadlines(expires_s=expires_s)
    request = SimpleNamespace(written_count=0)
    return SimpleNamespace(
        times=times, leader=None, generated=int(begun), request=request, cancelled=cancelled
    )


def rejections(*sequences: Any, running: tuple[Any, ...] = ()) -> Rejections:
    live: Any = SimpleNamespace(waiting=sequences, running=dict(enumerate(running)))
    unused: Any = None
    return Rejections(live, unused, "serve", 8, lambda: None)


def test_texts_that_have_begun_or_were_cancelled_expire_no_more() -> None:
    found = rejections(waiting(9.0), waiting(3.0, begun=True), running=(waiting(5.0),))
    assert found.expires_s() == 5.0
    assert rejections(waiting(2.0, cancelled=True), waiting(inf)).expires_s() == inf


def test_a_reason_is_a_word_for_clients_and_a_sentence() -> None:
    assert EXPIRED[0] == "deadline_exceeded"
