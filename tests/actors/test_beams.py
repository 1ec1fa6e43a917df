"""Beam searches through the engine's interface: streamed without retracting, refused by name,
replayed."""

from itertools import pairwise, product
from typing import Any

import msgspec
import pytest

from draftwerk.actors.engine import running
from draftwerk.actors.events.client_events import Delta, Ended, Event, Failed
from draftwerk.cache.kinds.recurrent_states import StateSlots
from draftwerk.speculative.load.size_limits import MemorySizes, RefusedError, RequestSizes
from draftwerk.speculative.options.beams.beam_refusals import check_beam
from draftwerk.speculative.request import EncodedRequest, Options
from draftwerk.speculative.sampling import Grammar, Sampling
from draftwerk.speculative.scheduler import RoundLimits
from tests.actors.loops import on_both_loops, settle
from tests.actors.test_engine import PROMPT, Bench, events, plain, text_of
from tests.support.toy import ToyText

GREEDY = Sampling(temperature=0.0)
BEAMS = Options(sampling=GREEDY, tokens_max=10, beam_width=3, ignore_eos=True)


def changed(**changes: Any) -> Options:
    return msgspec.structs.replace(BEAMS, **changes)


def deltas(found: list[Event]) -> list[Delta]:
    return [event for event in found if isinstance(event, Delta)]


@on_both_loops
async def test_the_settled_beginning_is_streamed_and_never_taken_back() -> None:
    streamed = 0
    options = changed(tokens_max=16)
    async with running(Bench().parts()) as engine:
        for first in range(1, 12):
            prompt = (first, *PROMPT)
            found = await events(engine, options, prompt=prompt)
            assert text_of(found) == plain(options, prompt=prompt)
            streamed += len(deltas(found)) > 1
    assert streamed > 5, "nothing was sent before the end"


@on_both_loops
async def test_the_best_text_so_far_is_sent_on_request_and_is_not_final() -> None:
    options = changed(tokens_max=16, shows_hypotheses=True)
    changed_its_mind = 0
    async with running(Bench().parts()) as engine:
        for first in range(1, 8):
            prompt = (first, *PROMPT)
            found = await events(engine, options, prompt=prompt)
            assert text_of(found) == plain(options, prompt=prompt)
            said = [delta.further.hypothesis for delta in deltas(found) if delta.further.hypothesis]
            assert len(said) > 1
            settled = ""
            for delta in deltas(found):
                settled += delta.text
                assert not delta.further.hypothesis or delta.further.hypothesis.startswith(settled)
            changed_its_mind += any(not b.startswith(a) for a, b in pairwise(said))
    assert changed_its_mind, "no hypothesis was ever overtaken"


@on_both_loops
async def test_every_choice_is_one_of_the_best_texts_with_its_score() -> None:
    options = changed(choices=3)
    async with running(Bench().parts()) as engine:
        found = await events(engine, options)
        assert [text_of(found, n) for n in range(3)] == [plain(options, n) for n in range(3)]
        scores = [event.stats.further.score or 0.0 for event in found if isinstance(event, Ended)]
        assert all(score < 0.0 for score in scores)
        assert scores == sorted(scores, reverse=True)
        assert len({text_of(found, n)[0] for n in range(3)}) == 3


@on_both_loops
async def test_a_stop_string_ends_a_search() -> None:
    text, _ = plain(BEAMS)
    stop = text.split()[4] + " "
    options = changed(stop=(stop,))
    async with running(Bench().parts()) as engine:
        found = await events(engine, options)
        assert text_of(found)[1] == "stop"
        assert text_of(found) == plain(options)
        await settle()
        assert engine.snapshot().load.blocks_used == 0


@on_both_loops
async def test_the_score_is_that_of_the_tokens_up_to_a_stop_string() -> None:
    async with running(Bench().parts()) as engine:
        for choices, temperature in product((1, 2), (0.0, 1.0)):
            sampling = Sampling(temperature=temperature, logprobs=0, seed=1)
            options = changed(sampling=sampling, tokens_max=16, choices=choices, length_penalty=2.0)
            stop = plain(options)[0].split()[4] + " "
            options = msgspec.structs.replace(options, stop=(stop,))
            found = await events(engine, options, request_id=f"{choices} {temperature}")
            for end in (each for each in found if isinstance(each, Ended)):
                sent = [each.logprobs for each in deltas(found) if each.choice == end.choice]
                logprobs = [one.logprob for each in sent for one in each]
                assert len(logprobs) == end.token_count
                assert end.choice or (end.finish_reason == "stop" and end.token_count < 16)
                penalty = 1 if temperature else end.token_count**2
                assert end.stats.further.score == pytest.approx(sum(logprobs) / penalty)


@on_both_loops
async def test_log_probabilities_come_with_the_texts() -> None:
    options = changed(sampling=Sampling(temperature=0.0, logprobs=2))
    async with running(Bench().parts()) as engine:
        found = await events(engine, options)
        logprobs = [one for delta in deltas(found) for one in delta.logprobs]
        (end,) = (event for event in found if isinstance(event, Ended))
        assert len(logprobs) == end.token_count
        assert all(len(one.top) == 2 for one in logprobs)
        assert end.stats.further.score == pytest.approx(sum(one.logprob for one in logprobs) / 10)


@on_both_loops
async def test_a_crash_at_any_moment_repeats_and_loses_nothing() -> None:
    for step in range(1, 12):
        async with running(Bench(breaks_at={step}).parts()) as engine:
            found = await events(engine, BEAMS)
            assert text_of(found) == plain(BEAMS)
            tokens = [token for delta in deltas(found) for token in delta.tokens]
            assert ToyText().decode(tokens) == plain(BEAMS)[0]
            await settle()
            assert engine.snapshot().load.blocks_used == 0


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("length_penalty", {"sampling": Sampling(), "length_penalty": 2.0}),
    ("early_stopping", {"sampling": Sampling(), "early_stopping": True}),
    ("logprobs", {"sampling": Sampling(logprobs=0)}),
    ("logprobs", {"sampling": Sampling(temperature=0.0, logprobs=0, presence_penalty=1.0)}),
    ("beam_width", {"beam_width": 16, "tokens_max": 20}),
]


@on_both_loops
async def test_what_a_search_cannot_do_is_refused_by_name() -> None:
    async with running(Bench().parts()) as engine:
        for field, changes in REFUSED:
            (refusal,) = await events(engine, changed(**changes))
            assert isinstance(refusal, Failed)
            assert (refusal.kind, refusal.field) == ("refused", field)


@on_both_loops
async def test_texts_are_drawn_at_a_temperature_by_the_seed() -> None:
    async with running(Bench().parts()) as engine:
        found: list[tuple[str, str]] = []
        for seed in (1, 2, 1):
            options = changed(sampling=Sampling(seed=seed, temperature=0.8), choices=3)
            drawn = await events(engine, options)
            assert [text_of(drawn, n) for n in range(3)] == [plain(options, n) for n in range(3)]
            found.append(text_of(drawn, 0))
    assert found[0] == found[2] != found[1]


def test_logprobs_under_a_grammar_are_refused() -> None:
    sampling = Sampling(temperature=0.0, grammar=Grammar("regex", "a"), logprobs=1)
    request = EncodedRequest(
        request_id="r", tokens=(1, 2, 3, 4, 5), options=changed(sampling=sampling)
    )
    with pytest.raises(RefusedError) as refusal:
        check_beam(request, RequestSizes(15, 257, MemorySizes(blocks=(24, 4), round_max=256)))
    assert refusal.value.field == "logprobs"


@on_both_loops
async def test_a_beam_wider_than_the_slots_of_states_is_refused() -> None:
    async with running(Bench().parts(kinds=(StateSlots(7, 8).kind,))) as engine:
        (refusal,) = await events(engine, changed(beam_width=4))
        assert isinstance(refusal, Failed) and refusal.field == "beam_width"
        assert "3 wide at most" in refusal.reason


@on_both_loops
async def test_a_beam_wider_than_a_round_is_refused() -> None:
    async with running(Bench().parts(limits=RoundLimits(tokens_max=2))) as engine:
        (refusal,) = await events(engine, BEAMS)
        assert isinstance(refusal, Failed) and refusal.field == "beam_width"
