"""Tokens in, text out: the same text for every chunking and after every crash."""

from codecs import getincrementaldecoder
from itertools import pairwise

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from draftwerk.actors.detokenizer import PIECES_MAX, Detokenizer
from draftwerk.actors.events.client_events import Delta, Ended, Event, Failed, Started
from draftwerk.actors.mailbox import mailbox
from draftwerk.actors.messages import (
    Cancel,
    ChoiceUpdate,
    Closed,
    DetokenizerMessage,
    RequestEvents,
    RoundOutputs,
    RouterMessage,
)
from draftwerk.actors.monitoring.sequence_stats import SequenceStats
from draftwerk.speculative.replies.formats import CallFormat, ReasoningFormat, ReplyFormat
from draftwerk.speculative.replies.parser import ReplyPart, joined_parts
from draftwerk.speculative.request import EncodedRequest, Options
from draftwerk.speculative.requests.further_outputs import FurtherOutputs, ScoredTokens
from draftwerk.speculative.row_parts.chosen_logprob import ChosenLogprob
from draftwerk.speculative.sampling import Sampling
from tests.actors.letters import END, Letters

text = Letters()


def replies(*messages: DetokenizerMessage) -> list[RouterMessage]:
    """Return a detokenizer's messages once requests have started."""
    return [message for message in all_replies(*messages) if not is_start(message)]


def is_start(message: RouterMessage) -> bool:
    return isinstance(message, RequestEvents) and isinstance(message.events[0], Started)


def all_replies(*messages: DetokenizerMessage) -> list[RouterMessage]:
    return ran(*messages)[1]


def ran(*messages: DetokenizerMessage) -> tuple[Detokenizer, list[RouterMessage]]:
    """Run a detokenizer over some messages; returns it and all its messages."""

    async def main() -> tuple[Detokenizer, list[RouterMessage]]:
        outbox, inbox = mailbox[DetokenizerMessage](len(messages))
        to_router, router = mailbox[RouterMessage](1000)
        with inbox, router:
            for message in messages:
                outbox.send_nowait(message)
            outbox.close()
            with to_router:
                detokenizer = Detokenizer(inbox, to_router, text)
                await detokenizer.run()
            return detokenizer, [message async for message in router]

    return anyio.run(main)


def events(*messages: DetokenizerMessage) -> list[Event]:
    return [
        event
        for message in replies(*messages)
        if isinstance(message, RequestEvents)
        for event in message.events
    ]


def test_a_request_starts_with_its_prompt() -> None:
    (delivery,) = all_replies(opened("four"))
    begun = Started(request_id="r", prompt=tuple(text.encode("four")))
    assert delivery == RequestEvents(request_id="r", events=(begun,))


def opened(
    prompt: str = "", committed: tuple[tuple[int, ...], ...] = (), **how: object
) -> EncodedRequest:
    ended = how.pop("ended", ())
    options = Options(sampling=Sampling(), **how)  # type: ignore[arg-type]
    return EncodedRequest(
        request_id="r",
        tokens=tuple(text.encode(prompt)),
        options=options,
        committed=committed,
        ended=ended,  # type: ignore[arg-type]
    )


def piece(tokens: tuple[int, ...] = (), finish_reason: str = "", **how: object) -> ChoiceUpdate:
    """Return a piece whose origins and log-probabilities show which token they belong to."""
    logprobs = tuple(ChosenLogprob(-float(token)) for token in tokens)
    return ChoiceUpdate(
        tokens=tokens,
        origins=tuple(f"o{token}" for token in tokens),
        finish_reason=finish_reason,
        **{"request_id": "r", "choice": 0, "logprobs": logprobs, **how},  # type: ignore[arg-type]
    )


def generation(*pieces: ChoiceUpdate) -> RoundOutputs:
    return RoundOutputs(pieces=pieces)


def delta_and_end(*messages: DetokenizerMessage) -> tuple[Delta, Ended]:
    """Return the events of a text that comes and ends in one piece."""
    delta, end = events(*messages)
    assert isinstance(delta, Delta) and isinstance(end, Ended)
    return delta, end


def joined(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta | Ended))


@pytest.mark.parametrize(("reason", "rest"), [("stop", "\ufffd"), ("length", "")])
def test_half_a_code_point_is_a_replacement_character_but_where_a_text_was_cut(
    reason: str, rest: str
) -> None:
    delta, end = delta_and_end(opened(), generation(piece((0x61, 0xE2, 0x82), reason)))
    assert (delta.text, end.text) == ("a", rest)


def test_a_delta_has_an_origin_and_a_logprob_for_each_token() -> None:
    (delta,) = events(opened(), generation(piece((0x61, 0xE2))))
    assert isinstance(delta, Delta)
    assert delta.tokens == (0x61, 0xE2)
    assert delta.origins == ("o97", "o226")
    assert [(one.token_id, one.text, one.data) for one in delta.logprobs] == [
        (0x61, "a", b"a"),
        (0xE2, "\ufffd", b"\xe2"),
    ]


def test_alternatives_are_sent_as_text_too() -> None:
    logprob = ChosenLogprob(-1.0, ((0x61, -1.0), (END, -2.0)))
    (delta,) = events(opened(), generation(piece((0x61,), logprobs=(logprob,))))
    assert isinstance(delta, Delta)
    assert [(one.text, one.data, one.logprob) for one in delta.logprobs[0].top] == [
        ("a", b"a", -1.0),
        ("<end>", b"", -2.0),
    ]


def test_a_piece_of_many_tokens_is_one_delta_and_its_ending_comes_with_it() -> None:
    """In one delivery: a crash between the two would let the text go on after its end."""
    (delivery,) = replies(
        opened(), generation(piece(tuple(b"abc"), "length", stats=SequenceStats(step_count=3)))
    )
    assert isinstance(delivery, RequestEvents)
    delta, end = delivery.events
    assert isinstance(delta, Delta) and isinstance(end, Ended)
    assert delta.text == "abc"
    assert (end.finish_reason, end.text, end.token_count, end.stopped_by) == ("length", "", 3, "")
    assert end.stats.step_count == 3


def test_a_stop_token_has_no_text_but_counts() -> None:
    delta, end = delta_and_end(opened(), generation(piece((0x61, END), "stop")))
    assert (delta.text, delta.tokens) == ("a", (0x61, END))
    assert (end.finish_reason, end.token_count, end.stopped_by) == ("stop", 2, "")


def test_everything_is_cut_at_a_stop_string() -> None:
    delta, end = delta_and_end(opened(stop=("cd",)), generation(piece(tuple(b"abcdef"), "length")))
    assert delta.text == "ab"
    assert delta.tokens == tuple(b"abcd")
    assert delta.origins == tuple(f"o{byte}" for byte in b"abcd")
    assert len(delta.logprobs) == 4
    assert (end.finish_reason, end.stopped_by, end.token_count, end.text) == ("stop", "cd", 4, "")


def test_a_stop_string_that_the_last_half_code_point_completes_ends_the_text() -> None:
    delta, end = delta_and_end(
        opened(stop=("b\ufffd",)), generation(piece((0x61, 0x62, 0xE2), "stop"))
    )
    assert (delta.text, end.text) == ("a", "")
    assert (end.finish_reason, end.stopped_by) == ("stop", "b\ufffd")


def test_a_stop_string_in_an_echo_stops_nothing() -> None:
    found = events(opened("xx", echo=True, stop=("x",)), generation(piece((0x61,), "stop")))
    assert joined(found) == "xxa"


def test_choices_do_not_mix() -> None:
    found = events(
        opened(choices=2),
        generation(piece((0xC3,)), piece((0x62,), choice=1)),
        generation(piece((0xA9,)), piece((0x63,), "stop", choice=1)),
        generation(piece((0x64,), "length")),
    )
    assert joined([event for event in found if event.choice == 0]) == "éd"  # type: ignore[union-attr]
    assert joined([event for event in found if event.choice == 1]) == "bc"  # type: ignore[union-attr]


def test_a_failed_row_fails_the_request_once() -> None:
    found = events(opened(choices=2), generation(piece(finish_reason="failed", error="why")))
    assert found == [Failed(request_id="r", kind="failed", reason="why")]


def test_a_cancel_is_answered_and_nothing_follows_it() -> None:
    assert replies(opened(), Cancel(request_id="r"), generation(piece((0x61,), "stop"))) == [
        Closed(request_id="r")
    ]


def test_a_cancel_of_the_unknown_is_answered_too() -> None:
    assert replies(Cancel(request_id="r")) == [Closed(request_id="r")]


def test_a_cancel_of_one_choice_leaves_the_others() -> None:
    found = replies(
        opened(choices=2),
        Cancel(request_id="r", choice=1),
        generation(piece((0x61,)), piece((0x62,), choice=1)),
    )
    assert len(found) == 1
    assert isinstance(found[0], RequestEvents)
    assert joined(list(found[0].events)) == "a"


def test_a_finished_request_leaves_nothing_behind() -> None:
    ends = generation(piece((1,), "stop"), piece((1,), "length", choice=1))
    detokenizer, _ = ran(opened(choices=2), ends)
    assert detokenizer._choices == {}


# --- any chunking, any crash ----------------------------------------------------------------------

token_lists = st.one_of(
    st.lists(st.sampled_from([*b"abc", 0xC3, 0xA9, 0xE2, 0x82, 0xAC, END]), max_size=14),
    st.text("abé€", max_size=8).map(text.encode),
).map(tuple)
stop_lists = st.lists(st.text("abé", min_size=1, max_size=3), max_size=2).map(tuple)


def cuts(data: st.DataObject, tokens: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Cut tokens into rounds."""
    rounds: list[tuple[int, ...]] = []
    while tokens:
        size = data.draw(st.integers(1, len(tokens)))
        rounds.append(tokens[:size])
        tokens = tokens[size:]
    return rounds


def spoken(rounds: list[tuple[int, ...]], finish_reason: str = "length") -> list[RoundOutputs]:
    pieces = [piece(tokens) for tokens in rounds[:-1]]
    return [generation(one) for one in [*pieces, piece(rounds[-1], finish_reason)]]


def story(found: list[Event]) -> tuple[str, list[int], list[str], list[float], Ended]:
    """Return all that a client has in the end, however it came."""
    deltas = [event for event in found if isinstance(event, Delta)]
    (end,) = [event for event in found if isinstance(event, Ended)]
    assert found[-1] is end
    return (
        joined(found),
        [token for delta in deltas for token in delta.tokens],
        [origin for delta in deltas for origin in delta.origins],
        [one.logprob for delta in deltas for one in delta.logprobs],
        end,
    )


@settings(deadline=None, max_examples=60)
@given(token_lists.filter(bool), stop_lists, st.data())
def test_the_text_does_not_depend_on_the_rounds(
    tokens: tuple[int, ...], stops: tuple[str, ...], data: st.DataObject
) -> None:
    one_by_one = story(events(opened(stop=stops), *spoken([(token,) for token in tokens])))
    in_rounds = story(events(opened(stop=stops), *spoken(cuts(data, tokens))))
    assert in_rounds[:4] == one_by_one[:4]
    whole, end = one_by_one[0], one_by_one[4]
    assert (end.finish_reason == "stop") == bool(end.stopped_by)
    if not end.stopped_by:
        raw = bytes(token for token in tokens if token != END)
        is_cut = end.finish_reason == "length"  # then half a character at its end is left out
        assert whole == getincrementaldecoder("utf-8")("replace").decode(raw, final=not is_cut)
        assert not any(stop in whole for stop in stops)
    else:
        assert text.decode(tokens).startswith(whole + end.stopped_by)
    assert end.token_count == in_rounds[4].token_count == len(one_by_one[1])


@settings(deadline=None, max_examples=60)
@given(token_lists.filter(bool), stop_lists, st.booleans(), st.data())
def test_a_crash_repeats_nothing_and_loses_nothing(
    tokens: tuple[int, ...], stops: tuple[str, ...], echo: bool, data: st.DataObject
) -> None:
    calm = story(events(opened("hé", stop=stops, echo=echo), *spoken([tokens])))
    kept = calm[4].token_count
    crash = data.draw(st.integers(0, kept - 1), label="tokens delivered before the crash")
    before = events(
        opened("hé", stop=stops, echo=echo),
        *map(generation, map(piece, cuts(data, tokens[:crash]))),
    )
    after = events(
        opened("hé", (tokens[:crash],), stop=stops, echo=echo),
        *spoken(cuts(data, tokens[crash:])),
    )
    assert story([*before, *after]) == calm


def test_a_choice_that_ended_before_a_crash_is_not_opened_again() -> None:
    again = opened(committed=((0x61,), (0x62,)), ended=(0,), choices=2)
    found = events(again, generation(piece((0x63,), "stop"), piece((0x64,), "stop", choice=1)))
    assert joined(found) == "d"
    assert {event.choice for event in found if isinstance(event, Ended)} == {1}


CALLS = CallFormat("json", "<call>", '<call>{"name": "', '", "arguments": ', "}</call>")
MARKED = (
    "<think>Hm.</think>\n\nSo: ünï\n" + '<call>{"name": "f", "arguments": {"a": "🙂 }"}}</call>'
)
REPLY = ReplyFormat(CALLS, ReasoningFormat("<think>", "</think>"))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 9), max_size=80), st.integers(0, len(MARKED.encode())))
def test_parts_are_the_same_in_all_pieces_and_after_a_crash_anywhere(
    sizes: list[int], crash: int
) -> None:
    tokens = tuple(MARKED.encode())
    want = parts(events(opened(reply=REPLY), generation(piece((*tokens, END), "stop"))))
    assert [(part.kind, part.text) for part in want] == [
        ("reasoning", "Hm."),
        ("text", "So: ünï"),
        ("call", "f"),
        ("arguments", '{"a": "🙂 }"}'),
        ("end", ""),
    ]
    before, after = tokens[:crash], (*tokens[crash:], END)
    first = events(opened(reply=REPLY), generation(piece(before)))
    pieces: list[ChoiceUpdate] = []
    for size in sizes:
        if len(after) > size:
            pieces.append(piece(after[:size]))
            after = after[size:]
    pieces.append(piece(after, "stop"))
    second = events(opened(committed=(before,), reply=REPLY), generation(*pieces))
    assert parts([*first, *second]) == want


def parts(found: list[Event]) -> list[ReplyPart]:
    """Return the parts of all events, neighbours joined."""
    said = [part for event in found if isinstance(event, Delta | Ended) for part in event.parts]
    return joined_parts(said)


def test_tokens_of_reasoning_are_counted() -> None:
    tokens = (*MARKED.encode(), END)
    (*_, ended) = events(opened(reply=REPLY), generation(piece(tokens, "stop")))
    assert isinstance(ended, Ended)
    assert ended.reasoning_count == len("Hm.</think>"), "after the opening, its end included"


def told(reply: str, finish_reason: str = "stop", **how: object) -> tuple[list, Ended]:
    """Return the parts of a reply that comes byte by byte, and its end."""
    pieces = [piece((token,)) for token in reply.encode()[:-1]]
    last = piece(
        (*reply.encode()[-1:], *((END,) if finish_reason == "stop" else ())), finish_reason
    )
    found = events(opened(reply=REPLY, **how), *map(generation, [*pieces, last]))
    ended = found[-1]
    assert isinstance(ended, Ended)
    return [(part.kind, part.text) for part in parts(found)], ended


def test_a_stop_string_is_of_the_answer() -> None:
    found, ended = told("<think>No. So.</think>\n\nYes. No.", stop=(".", "\n"))
    assert found == [("reasoning", "No. So."), ("text", "Yes")]
    assert (ended.finish_reason, ended.stopped_by) == ("stop", ".")
    assert ended.token_count == len("<think>No. So.</think>\n\nYes.")


def test_a_stop_string_in_a_call_stops_nothing() -> None:
    found, ended = told(MARKED, stop=("}", "f", "🙂"))
    assert found[-1] == ("end", "") and ended.stopped_by == ""


def test_a_stop_string_of_white_space_waits_for_nothing() -> None:
    _, ended = told("<think>\n\n</think>\n\nYes.\n\n<call>", stop=("\n\n",))
    assert ended.stopped_by == "\n\n"
    assert ended.token_count == len("<think>\n\n</think>\n\nYes.\n\n")


def test_a_stop_string_is_found_across_what_may_begin_a_mark() -> None:
    found, ended = told("a <call b", stop=("<call b",))
    assert (found, ended.stopped_by) == ([("text", "a ")], "<call b")


@settings(deadline=None, max_examples=60)
@given(stop_lists, st.data())
def test_stop_strings_of_an_answer_do_not_depend_on_the_rounds_or_crashes(
    stops: tuple[str, ...], data: st.DataObject
) -> None:
    pieces = st.sampled_from(["<think>", "</think>", "<call>", "<", "a", "b", "é", " ", "\n"])
    reply = "".join(data.draw(st.lists(pieces, min_size=1, max_size=10)))
    want, ended = told(reply, "length", stop=stops)
    tokens = tuple(reply.encode())[: ended.token_count]
    crash = data.draw(st.integers(0, len(tokens) - 1))
    first = events(opened(reply=REPLY, stop=stops), generation(piece(tokens[:crash])))
    again = opened(committed=(tokens[:crash],), reply=REPLY, stop=stops)
    second = events(again, generation(piece(tuple(reply.encode())[crash:], "length")))
    assert [(part.kind, part.text) for part in parts([*first, *second])] == want
    assert second[-1] == ended


@pytest.mark.parametrize(
    ("reply", "reason", "shown"),
    [
        ("Yes.\n<ca", "length", [("text", "Yes.")]),
        ("Yes.\n", "length", [("text", "Yes.\n")]),
        ("<ca", "length", []),
        ("<think>Hm.</thi", "length", [("reasoning", "Hm.")]),
        ("1 <", "stop", [("text", "1 <")]),
    ],
)
def test_a_reply_does_not_show_a_mark_in_which_it_is_cut(
    reply: str, reason: str, shown: list[tuple[str, str]]
) -> None:
    assert told(reply, reason)[0] == shown


def test_an_echo_shows_control_tokens_and_none_that_begin_every_prompt() -> None:
    text.own = (END,)
    prompt = (END, *b"a", END, *b"b")
    scored = [
        ScoredTokens(tokens, tuple(map(ChosenLogprob, (-1.0,) * len(tokens))))
        for tokens in (prompt[:1], prompt[1:])
    ]
    options = Options(sampling=Sampling(), echo=True, prompt_logprobs=0)
    found = events(
        EncodedRequest(request_id="r", tokens=prompt, options=options),
        *(generation(piece(further=FurtherOutputs(scored=each))) for each in scored),
        generation(piece((0x63, END), "length")),
    )
    text.own = ()
    deltas = [event for event in found if isinstance(event, Delta)]
    assert joined(found) == "a<end>bc"
    echoed = [token.data for delta in deltas for token in delta.further.scored]
    assert echoed == [b"", b"a", b"<end>", b"b"]
    assert [token.data for delta in deltas for token in delta.logprobs] == [b"c", b""]


def test_a_stop_token_of_the_client_has_a_name_and_no_text() -> None:
    pieces = generation(piece(tuple(b"a!"), "stop"))
    delta, end = delta_and_end(opened(stop_token_ids=(ord("!"),)), pieces)
    assert (delta.text, delta.tokens, end.text) == ("a", tuple(b"a!"), "")
    assert [(each.text, each.data) for each in delta.logprobs] == [("a", b"a"), ("!", b"")]


def test_other_actors_have_turns_between_the_pieces_of_a_round() -> None:
    rows = 5 * PIECES_MAX

    async def main() -> list[int]:
        """Return how many pieces were there at each turn of another task."""
        outbox, inbox = mailbox[DetokenizerMessage](rows + 1)
        to_router, router = mailbox[RouterMessage](3 * rows)
        for number in range(rows):
            outbox.send_nowait(replace(opened(), request_id=str(number)))
        pieces = (piece((65,), request_id=str(number)) for number in range(rows))
        outbox.send_nowait(RoundOutputs(pieces=tuple(pieces)))
        outbox.close()
        seen: list[int] = []
        with inbox, router, to_router:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(Detokenizer(inbox, to_router, text).run)
                while not seen or seen[-1] < 2 * rows:
                    seen.append(router.depth)
                    await checkpoint()
        return seen

    depths = [depth for depth in anyio.run(main) if depth >= rows]
    assert all(then - first <= PIECES_MAX for first, then in pairwise([rows, *depths]))
