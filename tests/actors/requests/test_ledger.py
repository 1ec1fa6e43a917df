"""The ledger: one last event for each request, each entry dropped once, nothing lost in a crash."""

from dataclasses import dataclass, field
from random import Random

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk.actors.events.client_events import Delta, Ended, Event, Failed, Started
from draftwerk.actors.events.option_texts import FurtherTexts, TokenText
from draftwerk.actors.messages import Cancel, Closed, RequestEvents, Submit, TokenizerMessage
from draftwerk.actors.monitoring.sequence_stats import SequenceStats
from draftwerk.actors.requests.ledger import Entry, Ledger
from draftwerk.actors.requests.suspects import ComputedCount
from draftwerk.speculative.request import Options
from draftwerk.speculative.sampling import Sampling


def delta(request_id: str, choice: int, *tokens: int) -> Delta:
    return Delta(request_id=request_id, choice=choice, text="x" * len(tokens), tokens=tokens)


def ended(request_id: str, choice: int, stopped_by: str = "") -> Ended:
    return Ended(
        request_id=request_id,
        choice=choice,
        finish_reason="stop",
        text="",
        token_count=1,
        stats=SequenceStats(),
        stopped_by=stopped_by,
    )


def failed(request_id: str, kind: str = "failed") -> Failed:
    return Failed(request_id=request_id, kind=kind, reason="why")


@dataclass
class Line:
    """The sending half of a client's stream, as the ledger sees it."""

    events: list[Event] = field(default_factory=list)
    closed: bool = False
    gone: bool = False
    """Whether the client has left."""

    def send_nowait(self, event: Event) -> None:
        if self.closed:
            raise anyio.ClosedResourceError
        if self.gone:
            raise anyio.BrokenResourceError
        self.events.append(event)

    def close(self) -> None:
        self.closed = True


@dataclass
class Desk:
    """A ledger, what it sent to the actors, and the streams it hands out."""

    sent: list[TokenizerMessage] = field(default_factory=list)
    freed: int = 0
    lines: dict[str, Line] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ledger = Ledger(send=self.sent.append, on_closed=self.free)

    def free(self) -> None:
        self.freed += 1

    def open(self, request_id: str = "r", choices: int = 1) -> Entry:
        line = self.lines[request_id] = Line()
        options = Options(sampling=Sampling(), choices=choices)
        submit = Submit(request_id=request_id, prompt=(1, 2), options=options)
        self.entries[request_id] = self.ledger.open(submit, line)  # type: ignore[arg-type]
        return self.entries[request_id]

    def tell(self, *events: Event) -> None:
        """Deliver the events of one piece."""
        self.ledger.deliver(RequestEvents(request_id=events[0].request_id, events=events))

    def close(self, request_id: str = "r") -> None:
        self.ledger.deliver(Closed(request_id=request_id))

    def read(self, request_id: str = "r") -> tuple[list[Event], bool]:
        """Return what the client can read now, and whether its stream has ended."""
        line = self.lines[request_id]
        events, line.events = line.events, []
        return events, line.closed


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_events_reach_their_client_in_order(desk: Desk) -> None:
    desk.open("a")
    desk.open("b")
    desk.tell(delta("a", 0, 5))
    desk.tell(delta("b", 0, 6))
    desk.tell(delta("a", 0, 7), ended("a", 0))
    assert desk.read("a") == ([delta("a", 0, 5), delta("a", 0, 7), ended("a", 0)], True)
    assert desk.read("b") == ([delta("b", 0, 6)], False)


def test_a_restart_does_not_start_a_request_again(desk: Desk) -> None:
    desk.open()
    started = Started(request_id="r", prompt=(1, 2))
    desk.tell(started)
    desk.tell(delta("r", 0, 5))
    desk.ledger.resubmit({})
    desk.tell(started)
    assert desk.read() == ([started, delta("r", 0, 5)], False)


def test_the_last_ending_frees_the_place(desk: Desk) -> None:
    desk.open(choices=2)
    desk.tell(ended("r", 1))
    assert desk.freed == 0
    assert desk.read() == ([ended("r", 1)], False)
    desk.tell(ended("r", 0))
    assert desk.freed == 1
    assert desk.read() == ([ended("r", 0)], True)
    assert not desk.ledger.entries


def test_a_refusal_is_the_last_word_and_frees_the_place(desk: Desk) -> None:
    desk.open()
    desk.ledger.deliver(failed("r", "refused"))
    assert desk.read() == ([failed("r", "refused")], True)
    assert desk.freed == 1
    assert len(desk.sent) == 1, "nothing of it is in the actors"


def test_after_a_failure_its_siblings_are_cancelled_before_the_place_is_free(desk: Desk) -> None:
    desk.open(choices=3)
    desk.tell(failed("r"))
    assert desk.read() == ([failed("r")], True)
    assert desk.sent[1:] == [Cancel(request_id="r")]
    desk.tell(delta("r", 1, 5))
    assert desk.freed == 0
    desk.close()
    assert desk.freed == 1


def test_a_stop_string_ends_the_sequence_behind_it_too(desk: Desk) -> None:
    desk.open()
    desk.tell(delta("r", 0, 5), ended("r", 0, "stop"))
    assert desk.sent[1:] == [Cancel(request_id="r")]
    assert desk.read()[1]
    assert desk.freed == 0
    desk.close()
    assert desk.freed == 1


def test_a_stop_string_of_one_choice_leaves_the_others_alone(desk: Desk) -> None:
    desk.open(choices=2)
    desk.tell(ended("r", 1, "stop"))
    assert desk.sent[1:] == [Cancel(request_id="r", choice=1)]
    desk.tell(delta("r", 0, 5), ended("r", 0))
    assert desk.sent[2:] == [Cancel(request_id="r")], "its other cancel may still be under way"
    assert desk.freed == 0
    desk.close()
    assert desk.freed == 1


def test_a_client_that_leaves_is_cancelled_once_and_keeps_its_place_until_that_is_done(
    desk: Desk,
) -> None:
    entry = desk.open()
    desk.ledger.leave(entry)
    desk.ledger.leave(entry)
    assert desk.sent[1:] == [Cancel(request_id="r")]
    assert desk.freed == 0
    desk.tell(delta("r", 0, 5), ended("r", 0))
    assert desk.freed == 0, "its cancel is still under way"
    desk.close()
    assert desk.freed == 1


def test_leaving_after_the_end_cancels_nothing_nor_a_namesake(desk: Desk) -> None:
    entry = desk.open()
    desk.tell(ended("r", 0))
    desk.ledger.leave(entry)
    assert len(desk.sent) == 1
    desk.open()
    desk.ledger.leave(entry)
    assert not any(isinstance(message, Cancel) for message in desk.sent)


def test_a_closed_stream_does_not_disturb_the_ledger(desk: Desk) -> None:
    entry = desk.open()
    desk.lines["r"].gone = True
    desk.tell(delta("r", 0, 5))
    desk.ledger.leave(entry)
    desk.close()
    assert desk.freed == 1


def test_events_of_no_live_request_vanish(desk: Desk) -> None:
    desk.tell(delta("r", 0, 5))
    desk.close()
    assert (desk.freed, desk.sent) == (0, [])


# --- after a crash --------------------------------------------------------------------------------


def test_what_was_delivered_is_what_is_resubmitted(desk: Desk) -> None:
    entry = desk.open(choices=3)
    desk.tell(delta("r", 0, 5, 6))
    desk.tell(delta("r", 2, 7))
    desk.tell(delta("r", 0, 8))
    desk.tell(ended("r", 1))
    desk.ledger.resubmit({})
    assert desk.sent[-1] == Submit(
        request_id="r",
        prompt=(1, 2),
        options=entry.submit.options,
        committed=((5, 6, 8), (), (7,)),
        ended=(1,),
    )
    assert not desk.read()[1], "the stream goes on"


def test_who_meets_restarts_at_one_place_is_taken_for_their_cause(desk: Desk) -> None:
    desk.open("cause")
    desk.open("victim")
    for n in range(12):
        desk.ledger.resubmit({"cause": ComputedCount(7), "victim": ComputedCount(n)})
    assert desk.ledger.entries.keys() == {"victim"}


def test_a_search_that_restarts_anywhere_is_never_taken_for_the_cause(desk: Desk) -> None:
    desk.open("search")
    rng = Random(1)
    for _ in range(300):
        desk.ledger.resubmit({"search": ComputedCount(50, rng.randrange(100))})
    assert desk.ledger.entries.keys() == {"search"}


def test_a_prompt_that_fails_its_model_is_found_wherever_its_rounds_begin(desk: Desk) -> None:
    desk.open("cause")
    rng = Random(1)
    restarts = 0
    while desk.ledger.entries:
        desk.ledger.resubmit({"cause": ComputedCount(rng.choice([256, 512, 700, 768]))})
        restarts += 1
    assert restarts <= 30


@pytest.mark.parametrize("spread", [1, 4, 8])
def test_a_cause_is_found_though_drafts_blur_its_place(desk: Desk, spread: int) -> None:
    desk.open("cause")
    rng = Random(1)
    restarts = 0
    while desk.ledger.entries:
        desk.ledger.resubmit({"cause": ComputedCount(50, 100 - rng.randrange(spread))})
        restarts += 1
    assert 9 <= restarts <= 30


def test_a_choice_that_ends_makes_the_others_places_new(desk: Desk) -> None:
    desk.open("cause", choices=2)
    desk.ledger.resubmit({"cause": ComputedCount(200)})
    desk.tell(ended("cause", 0))
    for _ in range(9):
        desk.ledger.resubmit({"cause": ComputedCount(100)})
    assert not desk.ledger.entries


def test_a_token_clears_of_suspicion(desk: Desk) -> None:
    desk.open()
    for _ in range(50):
        desk.ledger.resubmit({"r": ComputedCount(7)})
        desk.tell(delta("r", 0, 5))
    assert desk.ledger.entries.keys() == {"r"}


def test_who_has_left_or_had_the_last_word_is_not_resubmitted(desk: Desk) -> None:
    desk.ledger.leave(desk.open("left"))
    desk.open("over")
    desk.tell(failed("over"))
    desk.open("alive")
    before = len(desk.sent)
    desk.ledger.resubmit({})
    assert [message.request_id for message in desk.sent[before:]] == ["alive"]
    assert desk.freed == 2
    assert desk.ledger.entries.keys() == {"alive"}


def test_failing_gives_everyone_one_last_word(desk: Desk) -> None:
    desk.open("new")
    desk.open("half", choices=2)
    desk.tell(ended("half", 0))
    desk.open("over")
    desk.tell(failed("over"))
    desk.ledger.fail("the end")
    last = Failed(request_id="new", kind="failed", reason="the end")
    assert desk.read("new") == ([last], True)
    events, closed = desk.read("half")
    assert closed and isinstance(events[-1], Failed) and len(events) == 2
    assert desk.read("over") == ([failed("over")], True)
    assert desk.freed == 3
    assert not desk.ledger.entries
    desk.ledger.fail("again")
    assert desk.freed == 3


# --- any order ------------------------------------------------------------------------------------


def play(desk: Desk, rng: Random) -> None:
    """Let actors, clients and crashes act in a random order, each by its own rules."""
    unanswered: list[str] = []
    for request_id in "abcd":
        desk.open(request_id, rng.choice([1, 1, 2, 3]))
    running = {
        (request_id, choice)
        for request_id, entry in desk.entries.items()
        for choice in range(entry.submit.options.choices)
    }
    seen = len(desk.sent)
    while desk.ledger.entries:
        for message in desk.sent[seen:]:
            if isinstance(message, Cancel) and message.choice is None:
                unanswered.append(message.request_id)
        seen = len(desk.sent)
        act = rng.choice(["tell", "tell", "tell", "leave", "answer", "crash", "fail"])
        if act == "tell" and running:
            request_id, choice = rng.choice(sorted(running))
            ending = rng.choice(
                [
                    None,
                    ended(request_id, choice),
                    ended(request_id, choice, "s"),
                    failed(request_id),
                ]
            )
            if isinstance(ending, Ended):
                running.discard((request_id, choice))
            events = [delta(request_id, choice, rng.randrange(9))]
            desk.tell(*events, *([ending] if ending else []))
        elif act == "answer" and unanswered:
            request_id = unanswered.pop(0)
            running = {key for key in running if key[0] != request_id}
            desk.close(request_id)
        elif act == "leave" and rng.random() < 0.3:
            desk.ledger.leave(desk.entries[rng.choice("abcd")])
        elif act == "crash" and rng.random() < 0.2:
            unanswered.clear()
            desk.ledger.resubmit({})
            seen = len(desk.sent)
        elif act == "fail" and (rng.random() < 0.02 or not running):
            desk.ledger.fail("the end")


@given(st.integers(0, 10**6))
def test_in_any_order_everyone_has_one_last_word_and_every_place_is_freed_once(seed: int) -> None:
    desk = Desk()
    play(desk, Random(seed))
    assert desk.freed == len(desk.entries)
    for request_id, entry in desk.entries.items():
        events, closed = desk.read(request_id)
        assert closed, "the stream was left open"
        endings = [n for n, event in enumerate(events) if isinstance(event, Ended | Failed)]
        failures = [n for n in endings if isinstance(events[n], Failed)]
        assert len(failures) <= 1
        if failures:
            assert failures == [len(events) - 1], "something came after the last word"
        elif not entry.cancelled or entry.over:
            assert len(endings) == entry.submit.options.choices
            assert endings[-1] == len(events) - 1
        told = [token for event in events if isinstance(event, Delta) for token in event.tokens]
        assert len(told) == sum(map(len, entry.committed)), "recorded is what was delivered"
        cancels = [m for m in desk.sent if m == Cancel(request_id=request_id)]
        assert len(cancels) <= 1


def test_a_prompt_that_was_reported_is_not_reported_again() -> None:
    sent: list[TokenizerMessage] = []
    ledger = Ledger(sent.append, lambda: None)
    options = Options(sampling=Sampling(), prompt_logprobs=0, scored_from=2)
    ledger.open(Submit(request_id="r", prompt=(1, 2, 3, 4, 5, 6), options=options), Line())
    scored = tuple(TokenText(token, "x", b"x", -1.0) for token in (3, 4, 5))
    event = Delta(request_id="r", choice=0, text="", further=FurtherTexts(scored=scored))
    ledger.deliver(RequestEvents(request_id="r", events=(event,)))
    ledger.resubmit({})
    again = sent[-1]
    assert isinstance(again, Submit) and again.options.scored_from == 5
