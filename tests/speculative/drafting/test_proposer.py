"""The proposer with a scheduler and a toy target: every source, preemption, nothing left behind."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from msgspec.structs import replace

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.memory import CachePools
from draftwerk.cache.tables import BlockNamer
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.drafting.rationing import (
    ASK_MS,
    HEAD_MS,
    PROBE_SHARE,
    PROBED_MAX,
    TOPK_MS,
    VAIN_SHARE,
)
from draftwerk.speculative.options.beams.search_drafts import SearchDrafts
from draftwerk.speculative.request import SequenceRequest
from draftwerk.speculative.rounds import (
    NO_DRAFT,
    NO_FEEDBACK,
    Draft,
    NewSequence,
    Proposal,
    Row,
    chain,
)
from draftwerk.speculative.row_parts.beam_rows import Branch
from draftwerk.speculative.row_parts.feedback import Feedback, HeadNode
from draftwerk.speculative.row_parts.step_report import NO_STEP, StepReport
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.scheduler import RoundLimits, Scheduler
from draftwerk.speculative.sequence import Sequence
from draftwerk.speculative.sources.ngram_index import GAP, PAD
from draftwerk.speculative.sources.store import OutputStores
from tests.speculative.drafting.replay import Recording, Replay
from tests.support.proposing import drafts_of
from tests.support.rounds import make_round, make_row
from tests.support.toy import STOP, TalkativeTarget, plain_text

ALL = ("ngram", "suffix", "store", "recycle")


def serve(seed: int, methods: tuple[str, ...]) -> Counter[str]:
    """Serve random requests, some cancelled, some preempted; return what happened."""
    rng = random.Random(seed)
    scheduler = Scheduler(
        CachePools(BlockPool(16, 4)), RoundLimits(rows_max=5, tokens_max=40, draft_max=7)
    )
    target = TalkativeTarget(16, 4)
    stores = OutputStores()
    proposer = Proposer(methods, stores=stores)
    namer = BlockNamer(b"")
    wanted: dict[str, list[int]] = {}
    got: dict[str, list[int]] = {}
    for number in range(14):
        prompt = [1 + n % 4 for n in range(rng.choice([3, 9]))]
        sampling = Sampling(
            temperature=rng.choice([0.0, 1.0]), seed=number % 3, stop_token_ids=(STOP,)
        )
        name = str(number)
        want = plain_text(prompt, sampling, 24)
        wanted[name], got[name] = want, []
        scheduler.submit(
            Sequence(
                number,
                SequenceRequest(
                    request_id=name,
                    prompt_count=len(prompt),
                    sampling=sampling,
                    tokens_max=24,
                    draft_max=7,
                    name_space=rng.choice("ab"),
                    prediction=tuple(want[3:]) if rng.random() < 0.3 else (),
                ),
                list(prompt),
                scheduler.pools.memory(namer, ""),
            )
        )
    cancelled: set[str] = set()
    while (round_ := scheduler.plan()) is not None:
        drafts = drafts_of(proposer, round_, (NO_DRAFT,) * len(round_.rows))
        proposer.check()
        for row, draft in zip(round_.rows, drafts, strict=True):
            assert len(draft.tokens) <= row.draft_max
            assert row.samples or not draft.tokens
        verdict = replace(target.step(Proposal(round_, drafts)), drafts=drafts)
        for progress in scheduler.commit(verdict):
            got[progress.sequence.request.request_id] += progress.tokens
        if rng.random() < 0.03:
            cancelled.add(name := rng.choice(list(wanted)))
            scheduler.cancel(name)
    for name, want in wanted.items():
        assert got[name] == want or (name in cancelled and got[name] == want[: len(got[name])])
    drafts_of(
        proposer,
        make_round(finished_ids=tuple(scheduler.running_set.finished_ids)),
        (),
    )
    assert not proposer._sequences.states
    stored = [
        token
        for name_space in "ab"
        for generation in stores.of(name_space).store.generations
        for token in generation.tokens[PAD:]
    ]
    context = PAD * stored.count(GAP)
    assert len(stored) <= sum(map(len, got.values())) + context + stored.count(GAP), "learnt twice"
    stats = scheduler.stats
    return Counter(
        preemptions=stats.preemptions,
        stored=len(stored),
        **{f"{name} right": n for name, n in stats.accepted_by_source.items()},
        rejected=stats.draft_tokens - stats.accepted_tokens,
    )


def test_every_source_guesses_and_no_text_changes() -> None:
    counters = sum((serve(seed, ALL) for seed in range(12)), Counter[str]())
    for happened in (
        "preemptions",
        "stored",
        "rejected",
        "prediction right",
        "suffix right",
        "store right",
        "recycle right",
    ):
        assert counters[happened] > 0, counters


@pytest.mark.parametrize("method", ALL)
def test_a_server_runs_only_its_methods(method: str) -> None:
    counters = sum((serve(seed, (method,)) for seed in range(4)), Counter[str]())
    named = {name.removesuffix(" right") for name in counters if name.endswith(" right")}
    assert named <= {method, "prediction"}


def first_row(methods: tuple[str, ...] | None, prediction: tuple[int, ...] = ()) -> Row:
    new_sequence = NewSequence((1, 2, 3, 1, 2, 3, 1), 7, Sampling(), methods, "", prediction)
    return make_row(6, 7, draft_max=7, new_sequence=new_sequence)


def drafted(row: Row, model: Draft = NO_DRAFT) -> set[str]:
    proposer = Proposer(("ngram", "suffix"), [(1, 10.0), (8, 10.0)])
    return {*drafts_of(proposer, make_round(row, round_id=1), (model,))[0].sources}


def test_a_request_runs_only_its_methods() -> None:
    assert drafted(first_row(("ngram",))) == {"ngram"}
    assert drafted(first_row(("suffix",))) == {"suffix"}
    assert drafted(first_row(("store",))) == set()
    assert drafted(first_row(())) == set()


def test_a_prediction_is_always_allowed_and_the_draft_model_only_if_named() -> None:
    assert drafted(first_row((), (8, 9))) == {"prediction"}
    model = chain((8, 9), "draft")
    assert drafted(first_row(None), model) >= {"draft"}
    assert drafted(first_row(("draft",)), model) == {"draft"}
    assert "draft" not in drafted(first_row(("ngram",)), model)


def test_a_row_without_room_is_not_drafted() -> None:
    new_sequence = NewSequence((1, 2, 1, 2), 4, Sampling())
    proposer = Proposer(ALL)
    rows = (
        make_row(3, 4, new_sequence=new_sequence),
        make_row(0, 3, sequence_id=2, samples=False, new_sequence=new_sequence),
    )
    assert drafts_of(proposer, make_round(*rows, round_id=1), (NO_DRAFT,) * 2) == (NO_FEEDBACK,) * 2


@pytest.mark.parametrize(("methods", "wanted"), [(None, True), (("ngram",), False), ((), False)])
def test_the_draft_head_runs_behind_a_prompt_of_a_request_that_may_have_its_trees(
    methods: tuple[str, ...] | None, wanted: bool
) -> None:
    new_sequence = NewSequence((1, 2, 1, 2), 4, Sampling(), methods)
    row = make_row(3, 4, new_sequence=new_sequence)
    proposer = Proposer((*ALL, "head"), [(1, 10.0)])
    (draft,) = drafts_of(proposer, make_round(row, round_id=1), (NO_DRAFT,))
    assert (draft.wants_levels > 0) == wanted


def test_the_draft_models_tree_is_merged_with_the_rest() -> None:
    proposer = Proposer(("ngram",), [(1, 10.0), (16, 10.0)])
    model = Draft((2, 9, 5, 3), (-1, -1, 1, 0), ("draft",) * 4)
    draft = drafts_of(proposer, make_round(first_row(None), round_id=1), (model,))[0]
    assert {(-1, 2), (-1, 9)} <= {*zip(draft.parents, draft.tokens, strict=True)}
    assert "draft" in draft.sources


def test_the_draft_model_is_asked_before_it_is_run_and_not_for_those_who_forbid_it() -> None:
    proposer = Proposer((), [(1, 10.0), (8, 10.0)])
    new_sequence = NewSequence((4, 5), 2, Sampling(), ("ngram",))
    rows = (
        first_row(None),
        make_row(1, 2, sequence_id=2, draft_max=7, new_sequence=new_sequence),
    )
    prepared = proposer.prepare(make_round(*rows, round_id=1))
    lengths = proposer.model_lengths(prepared)
    assert lengths[0] > 0
    assert lengths[1] == 0
    proposer.finish(prepared, (NO_DRAFT, NO_DRAFT), 1.0)


def test_a_finished_output_serves_its_name_space_only() -> None:
    rng = random.Random(5)
    recording = Recording((1, 2, 3), tuple(rng.sample(range(1000), 300)))
    proposer = Proposer(("store",), [(n, 10.0) for n in (1, 8, 16)])
    rounds: list[int] = []
    for name_space in ("a", "b", "a"):
        replay = Replay(proposer, lambda tokens: 10.0, name_space=name_space)
        rounds.append(replay.run([recording], 1).rounds)
        replay.close()
    assert rounds[0] == rounds[1] == 300
    assert rounds[2] < 60
    assert not proposer._sequences.states


def test_a_request_without_speculation_teaches_the_store_nothing() -> None:
    recording = Recording((1, 2, 3), tuple(random.Random(5).sample(range(1000), 100)))
    proposer = Proposer(("store",), [(n, 10.0) for n in (1, 8, 16)])
    for draft_max in (0, 15):
        replay = Replay(proposer, lambda tokens: 10.0, draft_max)
        assert replay.run([recording], 1).rounds == 100
        replay.close()


NOT_YET = Draft(wants_levels=0, followed=False)
"""Of a row whose sources are asked and have nothing."""


def test_a_long_prompt_is_indexed_over_several_rounds() -> None:
    prompt = tuple(n % 700 for n in range(6000))
    proposer = Proposer(("ngram",), [(1, 10.0), (8, 10.0)])
    row = make_row(5999, 6000, draft_max=7, new_sequence=NewSequence(prompt, 6000, Sampling()))
    assert drafts_of(proposer, make_round(row, round_id=1), (NO_DRAFT,)) == (NOT_YET,)
    drafts = [
        drafts_of(
            proposer,
            make_round(
                make_row(
                    5998 + number,
                    5999 + number,
                    draft_max=7,
                    new_token_ids=(prompt[5998 + number - 700],),
                ),
                round_id=number,
            ),
            (NO_DRAFT,),
        )[0]
        for number in range(2, 12)
    ]
    assert all(draft.tokens for draft in drafts[-3:])


def test_rows_whose_guesses_do_not_pay_take_turns() -> None:
    proposer = Proposer(ALL, ((1, 8.0), (64, 30.0)))
    count, wants_topk, asked_in_all = 32, set[int](), 0
    rng = random.Random(3)
    for number in range(2 * count):
        rows = tuple(
            make_row(
                7 + number,
                8 + number,
                sequence_id=each,
                draft_max=7,
                new_token_ids=(rng.randrange(1000),) if number else (),
                new_sequence=None
                if number
                else NewSequence(tuple(rng.choices(range(1000), k=8)), 8, Sampling()),
                tokens_left=100,
            )
            for each in range(count)
        )
        drafts = drafts_of(proposer, make_round(*rows, round_id=number), (NO_DRAFT,) * count)
        asked = {each for each, draft in enumerate(drafts) if draft.wants_topk}
        assert len(asked) in ((0, PROBED_MAX) if number else (count,))
        asked_in_all += len(asked)
        wants_topk |= asked
    assert wants_topk == set(range(count))
    share_ms = VAIN_SHARE * PROBE_SHARE / 2 * 19.1
    assert asked_in_all <= count + 2 * count * share_ms / (ASK_MS + TOPK_MS)


TICK_MS = 0.0025
"""From one look at the clock to the next; sources are asked between two, drafts chosen as well."""


def experts_ms(tokens: int) -> float:
    """Return what a step costs of which each token chooses 8 of 128 experts, by chance."""
    return 1.5 + 0.05 * tokens + 0.16 * 128 * (1.0 - (1.0 - 8 / 128) ** tokens)


@pytest.mark.parametrize("vocabulary", [30, 40_000])
@pytest.mark.parametrize("users", [1, 4, 16])
def test_drafts_that_are_never_right_cost_next_to_nothing(users: int, vocabulary: int) -> None:
    """With experts: a drafted token reads further ones, and the target's top-k takes time too."""
    rng, ticks = random.Random(users), count()
    measured = [(tokens, experts_ms(tokens)) for tokens in (1, 16)]
    proposer = Proposer(ALL, measured, clock=lambda: next(ticks) * TICK_MS * 1e-3)
    replay = Replay(proposer, experts_ms, topk_ms=0.03)
    texts = [
        Recording(
            tuple(rng.choices(range(vocabulary), k=32)), tuple(rng.choices(range(vocabulary), k=96))
        )
        for _ in range(4 * users)
    ]
    report = replay.run(texts, users)
    replay.close()
    plain_ms = 4 * 96 * experts_ms(users)
    assert report.ms + 2 * TICK_MS * report.rounds < plain_ms / 0.99


def head_rounds(
    text: list[int], rounds: int, guess: Callable[[int], int], head_ms: float = 0.0
) -> Iterator[tuple[int, bool, bool]]:
    """Yield rounds of a text: whether one had a tree of the head, and whether the head runs in it.

    The target's token is the next of the text, and the head guesses what follows.
    """
    proposer, head_tree = Proposer(("head",), ((1, 8.0), (16, 8.5))), tuple[HeadNode, ...]()
    opened = NewSequence(tuple(text[:9]), 9, Sampling(temperature=0.0))
    for number in range(rounds):
        known = 9 + number
        row = make_row(
            known - 1,
            known,
            draft_max=7,
            new_token_ids=(text[known - 1],) if number else (),
            new_sequence=None if number else opened,
            tokens_left=1000,
            feedback=Feedback(head_tree=head_tree),
        )
        report = StepReport(head_rows=1, head_ms=head_ms) if head_tree and head_ms else NO_STEP
        round_ = make_round(row, round_id=number, report=report)
        (draft,) = drafts_of(proposer, round_, (NO_DRAFT,))
        yield number, bool(head_tree), draft.wants_levels > 0
        node = HeadNode(-1, text[known], (guess(number),), (1,))
        head_tree = (node,) if draft.wants_levels else ()


def test_a_head_must_pay_for_its_time() -> None:
    """The same guesses, always right: it pays at 0.1 ms a row, not at 10 ms a row."""
    text = list(range(100, 900))
    runs = {
        head_ms: sum(asks for *_, asks in head_rounds(text, 400, lambda at: text[at + 10], head_ms))
        for head_ms in (0.1, 10.0)
    }
    assert runs[0.1] > 350
    assert runs[10.0] < 50


def test_a_head_that_never_pays_runs_for_a_share_of_the_time_and_is_used_each_time() -> None:
    """And once its guesses come true it is asked in every round."""
    rng, runs, used = random.Random(3), Counter[str](), 0
    text = [rng.randrange(900) for _ in range(1000)]
    for number, has_tree, asks in head_rounds(
        text, 900, lambda at: text[at + 10] if at >= 600 else 901
    ):
        phase = "right" if number >= 600 else "wrong" if number >= 100 else "start"
        runs[phase] += asks
        used += phase == "wrong" and has_tree
    assert runs["start"] >= 8
    assert abs(used - runs["wrong"]) <= 1, "a tree is used in the round after"
    assert 5 <= runs["wrong"] <= 500 * VAIN_SHARE * PROBE_SHARE * 8.0 / HEAD_MS + 1
    assert runs["right"] > 120


@pytest.mark.parametrize(
    ("methods", "hears"), [(None, True), (("ngram", "head"), True), (("ngram",), False)]
)
def test_a_head_runs_for_beam_searches_that_allow_it(
    methods: tuple[str, ...] | None, hears: bool
) -> None:
    costs = (1, 1.0), (64, 1.01)
    proposer = Proposer(("ngram", "head"), costs, groups=SearchDrafts)
    new_sequence = NewSequence((1, 2, 3, 1, 2), 5, Sampling(temperature=0.0), methods)
    root = make_row(0, 4, samples=False, new_sequence=new_sequence)
    drafts_of(proposer, make_round(root), (NO_DRAFT,))
    branches = [
        make_row(
            4,
            5,
            sequence_id=number,
            draft_max=8,
            branch=Branch(group_id=1, candidates=4, origin=1, score=-1.0, width=2),
        )
        for number in (2, 3)
    ]
    drafts = drafts_of(proposer, make_round(*branches, round_id=1), (NO_DRAFT,) * 2)
    assert any(draft.tokens for draft in drafts)
    assert [draft.wants_levels > 0 for draft in drafts] == [hears] * 2


def test_a_round_in_which_only_branches_read_is_drafted_for() -> None:
    proposer = Proposer(("ngram",), ((1, 1.0), (64, 1.01)), groups=SearchDrafts)
    new_sequence = NewSequence((1, 2, 3, 1, 2), 5, Sampling(temperature=0.0))
    branch = Branch(group_id=1, candidates=4, score=-1.0, width=2)
    row = make_row(0, 4, samples=False, new_sequence=new_sequence, branch=branch)
    assert not drafts_of(proposer, make_round(row), (NO_DRAFT,))[0].tokens
