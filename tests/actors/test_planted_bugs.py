"""Planted bugs: each is a small slip in the product, and the tests' own machinery must catch it.

A test that cannot fail proves nothing. If a plant no longer takes because its line was rewritten,
plant the same slip in the new line.
"""

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass
from random import Random
from textwrap import dedent
from typing import Any

import pytest

from draftwerk.actors import stops
from draftwerk.actors.cache import Cache
from draftwerk.actors.detokenizer import Detokenizer
from draftwerk.actors.devices.recovering_target import RecoveringTarget
from draftwerk.actors.devices.rounds_in_flight import RoundsInFlight
from draftwerk.actors.ledger import Entry, Ledger
from draftwerk.actors.mailbox import MailboxQueue
from draftwerk.actors.messages import Cancel, Delivery, Generated, Opened
from draftwerk.actors.prefill import Prefiller
from draftwerk.actors.restarts import RestartLimit
from draftwerk.actors.stops import StopScanner
from draftwerk.actors.swap import SwapIn
from draftwerk.actors.tier_two import Intake, WriteBehind
from draftwerk.actors.tokenizer import Tokenizer
from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.prefix import BlockNamer
from draftwerk.cache.replacement import CostAware
from draftwerk.cache.tables import BlockTable
from draftwerk.speculative.blend.blending import Blending
from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.drafting import drafted_rounds
from draftwerk.speculative.drafting.controller import Controller
from draftwerk.speculative.drafting.drafted_rounds import DraftedRounds
from draftwerk.speculative.protocol.continuations import Continuations, RowEnd
from draftwerk.speculative.protocol.journal import MoveJournal
from draftwerk.speculative.sampling import gumbel as noise
from draftwerk.speculative.sampling import params as sampling
from draftwerk.speculative.sampling.params import Sampling
from draftwerk.speculative.scheduler import running_set, scheduler, turning_away
from draftwerk.speculative.scheduler.prefill_lane import PrefillLane
from draftwerk.speculative.scheduler.round_budget import RoundBudget
from draftwerk.speculative.scheduler.round_commit import RoundCommit
from draftwerk.speculative.scheduler.round_plan import RoundPlan
from draftwerk.speculative.scheduler.round_times import RoundTimes
from draftwerk.speculative.scheduler.running_set import RunningSet
from draftwerk.speculative.scheduler.scheduler import Scheduler
from draftwerk.speculative.scheduler.turning_away import TurningAway
from draftwerk.speculative.sequence import Sequence
from tests.actors import (
    loops,
    test_deadlines,
    test_detokenizer,
    test_engine,
    test_ledger,
    test_mailbox,
    test_prefill,
    test_request_stages,
    test_stops,
    test_swap,
    test_tier_two,
    test_tokenizer,
)
from tests.actors.devices import test_rounds_in_flight
from tests.cache import tables_world, test_replacement
from tests.speculative import test_continuations
from tests.speculative.costs import test_step_cost
from tests.speculative.drafting import test_controller
from tests.speculative.sampling import test_distribution as test_distribution
from tests.speculative.scheduler import (
    test_blocked_head,
    test_lengths,
    test_prefill_lane,
    test_priority,
    test_promises,
    test_round_budget,
    test_round_times,
    test_run_ahead,
)
from tests.speculative.scheduler.scheduler_world import story
from tests.support import toy
from tests.support.simulation import Setting, run
from tests.support.toy import ToyTarget

RESTART_LIMIT = "tests.support.simulation.RestartLimit"
SEEDS = 20
"""Simulations or stories within which a bug must show."""

Plant = Callable[[pytest.MonkeyPatch], None]
Hunt = Callable[[], object]


# --- who hunts ------------------------------------------------------------------------------------


def tables() -> None:
    """The random life of block tables."""
    for seed in range(200):
        tables_world.story(seed)


def stories() -> None:
    """Schedulers over a toy target."""
    for seed in range(2 * SEEDS):
        story(seed)


def simulations(**how: Any) -> Hunt:
    """Return a hunt over whole engines; where no device is lost, nothing may need a restart."""

    def hunt() -> None:
        for seed in range(SEEDS):
            counters = run(Setting(seed, **how)).counters
            assert counters["restarts"] == 0 or how.get("lost")

    return hunt


def recoveries() -> None:
    """Engines whose target dies over pages that outlive it; only a bug's actors start again."""
    for seed in range(2 * SEEDS):
        run(Setting(seed, lost=0.15, spare=bool(seed % 2), bugs=0.003))


def recoveries_ahead() -> None:
    """The same with two rounds in flight."""
    for seed in range(2 * SEEDS):
        counters = run(Setting(seed, lost=0.15, spare=bool(seed % 2), run_ahead=True)).counters
        assert counters["restarts"] <= counters["recoveries"] + 2


def second_tiers() -> None:
    """Engines with a store, one after the other."""
    for seed in range(SEEDS):
        kept: dict[bytes, list[tuple[int, int]]] = {}
        for server in range(2):
            run(Setting(2 * seed + server, store=True, kept=kept))


def crowded_segments() -> None:
    """Prompts that find no room for their segments wait: they do not enter over and over."""
    entered = Counter[int]()
    enter = RunningSet.enter

    def counted(self: RunningSet, sequence: Sequence) -> bool:
        entered[sequence.sequence_id] += 1
        assert entered[sequence.sequence_id] < 2000, "entered over and over"
        return enter(self, sequence)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunningSet, "enter", counted)
        for seed in range(SEEDS):
            run(Setting(seed, blended=1.0, block_count=20))


def apart() -> None:
    """Engines whose prompts other processes compute, which die; no actor may need a restart."""
    for seed in range(SEEDS):
        counters = run(Setting(seed, prefill=1 + seed % 2, prefill_lost=0.15)).counters
        assert counters["restarts"] == 0


def segments_apart() -> None:
    """Engines whose prompts other processes compute, all but those with segments."""
    for seed in range(SEEDS):
        run(Setting(seed, blended=0.5, prefill=1))


def joint_distribution() -> None:
    distribution = test_distribution.joint_distribution(2, Sampling())
    assert (
        test_distribution.chi_square_excess(test_distribution.texts(2, Sampling()), distribution)
        < 1
    )


def ledger(test: Callable[[test_ledger.Desk], None]) -> Hunt:
    return lambda: test(test_ledger.Desk())


def ledger_in_any_order() -> None:
    for seed in range(200):
        desk = test_ledger.Desk()
        test_ledger.play(desk, Random(seed))
        assert desk.freed == len(desk.entries)


def crashes() -> None:
    for step in range(1, 8):
        test_engine.test_a_crash_at_any_moment_changes_no_text("trio", step)


# --- what is planted ------------------------------------------------------------------------------


def slip(owner: Any, name: str, right: str, wrong: str) -> Plant:
    """Return a plant that rewrites one expression of a function."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        function = getattr(owner, name)
        source = dedent(inspect.getsource(function))
        assert source.count(right) == 1, f"plant it anew: {name} has no single {right!r}"
        made: dict[str, Any] = {}
        exec(source.replace(right, wrong), sys.modules[function.__module__].__dict__, made)
        monkeypatch.setattr(owner, name, made[name])

    return plant


def slip_property(owner: Any, name: str, right: str, wrong: str) -> Plant:
    """Return a plant that rewrites one expression of a property."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        getter = getattr(owner, name).fget
        source = dedent(inspect.getsource(getter)).removeprefix("@property\n")
        assert source.count(right) == 1, f"plant it anew: {name} has no single {right!r}"
        made: dict[str, Any] = {}
        exec(source.replace(right, wrong), sys.modules[getter.__module__].__dict__, made)
        monkeypatch.setattr(owner, name, property(made[name]))

    return plant


def endings_travel_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(self: Detokenizer) -> None:
        async for message in self.inbox:
            match message:
                case Opened():
                    self._choices[message.request_id] = self._open(message)
                case Generated():
                    for piece in message.pieces:
                        for event in self._events(piece):
                            await self.router.send(
                                Delivery(request_id=piece.request_id, events=(event,))
                            )
                case Cancel():
                    await self._cancel(message)

    monkeypatch.setattr(Detokenizer, "run", run)


@dataclass
class Bug:
    name: str
    plant: Plant
    hunt: Hunt


BUGS = [
    # cache
    Bug(
        "a block is evicted before what follows it",
        slip(CostAware, "add", "value = max(value, self._above)", "value = self._age"),
        lambda: [test_replacement.prefixes_outlive(seed) for seed in range(10)],
    ),
    Bug(
        "an evicted block stays among its tenant's",
        slip(CostAware, "_forget", "- 1", "- 0"),
        tables,
    ),
    Bug(
        "a released table keeps its first block's holder",
        slip(BlockTable, "truncate", "self.blocks[keep:])", "self.blocks[keep + 1 :])"),
        simulations(),
    ),
    Bug(
        "a shared block is copied, but the copy is never made",
        slip(BlockTable, "own", "return copies", "return []"),
        tables,
    ),
    Bug(
        "a shared block is written in place",
        slip(BlockTable, "own", "if self._pool.shared(self.blocks[i])", "if False"),
        tables,
    ),
    Bug(
        "a copied block keeps its old holder",
        slip(BlockTable, "own", "self._pool.drop([self.blocks[i]])", "pass"),
        tables,
    ),
    Bug(
        "an overwritten block keeps its name",
        slip(BlockTable, "own", "self._pool.unname(block)", "pass"),
        tables,
    ),
    Bug(
        "a block is named before its last slot is committed",
        slip(BlockTable, "commit", "computed // size", "-(-computed // size)"),
        tables,
    ),
    Bug(
        "a block that was found is not held",
        slip(BlockTable, "match", "self._pool.reuse(block)", "pass"),
        simulations(),
    ),
    Bug(
        "the whole prompt is found, and nothing is left to compute",
        slip(BlockTable, "_names_of", "(len(tokens) - 1)", "len(tokens)"),
        stories,
    ),
    Bug(
        "a sequence that waits is named at every try",
        slip(RunningSet, "enter", "sequence.tokens, sequence.names", "sequence.tokens"),
        test_blocked_head.test_a_blocked_sequence_is_named_once,
    ),
    Bug(
        "names that were made before are those of other blocks",
        slip(BlockTable, "_names_of", "yield names[index]", "yield names[-1]"),
        test_blocked_head.test_a_blocked_sequence_is_named_once,
    ),
    Bug(
        "a fork does not hold what it shares",
        slip(BlockTable, "fork", "self._pool.hold(block)", "pass"),
        tables,
    ),
    Bug(
        "a name forgets its name space",
        slip(BlockNamer, "name", 'name_space.encode("utf-8", "surrogatepass")', 'b""'),
        tables,
    ),
    Bug(
        "a name forgets what came before its block",
        slip(BlockNamer, "name", "blake2b(parent,", 'blake2b(b"",'),
        tables,
    ),
    Bug(
        "a revived block may still be evicted",
        slip(BlockPool, "hold", "self._cached.remove(block)", "pass"),
        simulations(),
    ),
    Bug(
        "a second block takes over the first one's name",
        slip(BlockPool, "name", "name not in self._block_by_name and ", ""),
        simulations(),
    ),
    # what a model process checks by itself
    Bug(
        "a process keeps the ends of sequences that are gone",
        slip(Continuations, "resolve", "self.ends.pop(sequence_id, None)", "pass"),
        simulations(run_ahead=True),
    ),
    Bug(
        "a process keeps feedback of sequences that are gone",
        slip(DraftedRounds, "step", "self._feedback.pop(sequence_id, None)", "pass"),
        simulations(run_ahead=True, reckless=False),
    ),
    Bug(
        "the text of a whole round is made in one turn",
        slip(Detokenizer, "_deliver", "number % PIECES_MAX == 0", "False"),
        test_detokenizer.test_other_actors_have_turns_between_the_pieces_of_a_round,
    ),
    # the stages of a request
    Bug(
        "prefill begins once more after a preemption",
        slip(Sequence, "begin_prefill", " and self.times.prefill_s is None", ""),
        simulations(),
    ),
    Bug(
        "decoding begins with every token",
        slip(Sequence, "begin_decode", " and self.times.decode_s is None", ""),
        test_request_stages.test_the_stages_of_a_request_add_up_to_its_time,
    ),
    Bug(
        "a request that was served elsewhere has stages",
        slip(Tokenizer, "_encode", "None if submit.committed else ", ""),
        test_tokenizer.test_a_request_that_comes_again_has_no_stages,
    ),
    # run-ahead
    Bug(
        "a row continues another sequence's",
        slip(
            Continuations,
            "ordinary",
            "self.ends.get(row.sequence_id)",
            "next(iter(self.ends.values()), None)",
        ),
        simulations(run_ahead=True),
    ),
    Bug(
        "a text that has ended is continued",
        slip(Continuations, "ordinary", "or end.ended", ""),
        simulations(run_ahead=True),
    ),
    Bug(
        "what a row was decided to have is forgotten where it goes on",
        slip(RowEnd, "continued", "new_token_ids=self.decided", "new_token_ids=()"),
        simulations(run_ahead=True),
    ),
    Bug(
        "a row that goes on skips the last token that is known",
        slip(RowEnd, "continued", "start=self.length - 1", "start=self.length"),
        simulations(run_ahead=True),
    ),
    Bug(
        "a row that goes on drafts beyond its text's end",
        slip(RowEnd, "continued", "min(row.draft_max, self.tokens_left - 1)", "row.draft_max"),
        test_continuations.test_drafts_end_with_the_text,
    ),
    Bug(
        "tokens left are counted once for two rounds",
        slip(RowEnd, "learn", "row.tokens_left - len(decision.tokens)", "row.tokens_left - 1"),
        test_continuations.test_drafts_end_with_the_text,
    ),
    Bug(
        "an overrun is delivered",
        slip(RoundCommit, "apply", "if sequence.ended:", "if False:"),
        simulations(run_ahead=True),
    ),
    Bug(
        "slots are reserved for the shortest outcome of the round under way",
        slip(Sequence, "known_max", "known + 1 + before.draft_max", "known + 1"),
        simulations(run_ahead=True),
    ),
    Bug(
        "an ended sequence reserves slots",
        slip(scheduler, "_goes_on", "or sequence.ended", ""),
        simulations(run_ahead=True),
    ),
    Bug(
        "a device is told twice what it decided itself",
        slip(
            RoundCommit,
            "_extend",
            "sequence.planned = sequence.sent_count = len",
            "sequence.planned = len",
        ),
        simulations(run_ahead=True),
    ),
    Bug(
        "a search is planned for while one of its rounds runs",
        slip(Scheduler, "_may_run_ahead", "any(s.search is not None for s in running)", "False"),
        simulations(run_ahead=True),
    ),
    Bug(
        "an urgent request never takes the place of rows that run ahead",
        slip(Scheduler, "_may_run_ahead", "self.running_set.makes_way or", ""),
        test_run_ahead.test_an_urgent_request_preempts_rows_that_would_run_ahead,
    ),
    Bug(
        "a row is given the answer of another",
        slip(drafted_rounds, "spread", "found[place] =", "found[place - 1] ="),
        simulations(run_ahead=True),
    ),
    Bug(
        "a new process is not told where a row goes on",
        slip(
            RoundsInFlight,
            "_row",
            "self.continuations.ordinary(row) or row",
            "row",
        ),
        recoveries_ahead,
    ),
    Bug(
        "an ending is forgotten with the process that decided it",
        slip(RoundsInFlight, "answered", "self.continuations.learn(", "len("),
        recoveries_ahead,
    ),
    Bug(
        "only the oldest round is sent again",
        slip(RecoveringTarget, "_recover", "for told in again:", "for told in again[:1]:"),
        recoveries_ahead,
    ),
    # scheduler
    Bug(
        "the target's own token counts as computed",
        slip(
            RoundCommit,
            "_extend",
            "stop + len(decision.path)",
            "stop + len(decision.tokens)",
        ),
        stories,
    ),
    Bug(
        "a device misses one token of the news",
        slip(
            RoundPlan,
            "add_row",
            "sequence.tokens[sent_count:]",
            "sequence.tokens[sent_count + 1 :]",
        ),
        simulations(),
    ),
    Bug(
        "a preempted sequence is not opened again",
        slip(
            RoundPlan,
            "add_row",
            "None if sent_count else",
            "None if sent_count or sequence.tally.preemptions else",
        ),
        simulations(),
    ),
    Bug(
        "devices never hear of an ending",
        slip(RunningSet, "_leave", "self._finished_ids.append(sequence.sequence_id)", "pass"),
        stories,
    ),
    Bug(
        "a search that is in flight is cancelled on the spot",
        slip(Scheduler, "cancel", "if not (sequence.in_flight or sequence.ended)", "if True"),
        simulations(),
    ),
    Bug(
        "a row that is in flight is preempted",
        slip(RunningSet, "_may_give_way", "if not sequence.in_flight", "if True"),
        stories,
    ),
    Bug(
        "the first in rank gives way",
        slip(RunningSet, "_may_give_way", "reverse=True", "reverse=False"),
        test_priority.test_the_least_urgent_makes_room_though_it_is_older,
    ),
    Bug(
        "priority is forgotten",
        slip(RunningSet, "submit", "sequence.priority * AGING_ROUNDS", "0"),
        test_priority.test_the_queue_is_in_order_of_priority_and_then_of_arrival,
    ),
    Bug(
        "age does not count",
        slip(RunningSet, "submit", "+ self.stats.rounds", "+ 0"),
        test_priority.test_a_low_priority_waits_for_so_many_rounds_of_urgent_work_and_no_longer,
    ),
    Bug(
        "a preempted sequence goes to the queue's head",
        slip(RunningSet, "put_back", "bisect_left(self.waiting, sequence.rank, key=rank_of)", "0"),
        test_priority.test_a_preempted_sequence_does_not_overtake_a_more_urgent_one,
    ),
    Bug(
        "an urgent request preempts its equals",
        slip(RunningSet, "make_way", "sequence.priority > first.priority and", ""),
        test_priority.test_a_choice_that_waited_for_its_sibling_preempts_no_equal,
    ),
    Bug(
        "what the others will need is not counted",
        slip(RunningSet, "_overflows", "(*self.running.values(), entering)", "(entering,)"),
        test_lengths.test_a_sequence_waits_where_all_would_not_fit_to_their_ends,
    ),
    Bug(
        "the pool is kept empty for what may come",
        slip(RunningSet, "_overflows", "or not self.running", ""),
        test_lengths.test_where_nothing_runs_the_first_enters_whatever_is_expected,
    ),
    Bug(
        "no text is ever learnt from",
        slip(RoundCommit, "_advance", "lengths.learn(sequence.generated)", "lengths.check()"),
        test_lengths.test_lengths_are_learnt_from_texts_that_end,
    ),
    # promises and deadlines
    Bug(
        "a round takes longer than was promised",
        slip(RoundBudget, "tokens", "prompts, rows.tpot_s)", "prompts, 2 * rows.tpot_s)"),
        test_round_budget.test_a_round_takes_no_longer_than_readers_were_promised,
    ),
    Bug(
        "a step behind a long context counts by its milliseconds",
        slip(StepCost, "_file", "1.0 / TOLD_MAX), TOLD_MAX)", "1.0), 1.0)"),
        test_step_cost.test_steps_behind_long_contexts_do_not_blur_what_short_ones_cost,
    ),
    Bug(
        "a token saves no more of a long context than of a short one",
        slip(Controller, "token_weights", "each * context for", "each * contexts[0] for"),
        test_controller.test_a_token_is_worth_the_time_that_its_row_would_have_taken,
    ),
    Bug(
        "what lies between two steps is not counted",
        slip(RoundTimes, "limit_ms", " - self.gap_ms", ""),
        test_round_times.test_a_step_has_the_time_that_lies_not_between_two,
    ),
    Bug(
        "half of the texts take longer than promised",
        slip(RoundTimes, "limit_ms", "QUANTILE * sqrt", "0.0 * sqrt"),
        lambda: test_round_times.test_texts_keep_their_mean_time_through_noise(0.3),
    ),
    Bug(
        "a server that was idle takes its rounds for slow",
        slip(Scheduler, "_learn_time", "if round_.continuous:", "if True:"),
        test_round_times.test_what_lies_between_rounds_is_learnt_and_idle_time_is_not,
    ),
    Bug(
        "a prompt is priced as if it were alone",
        slip(RoundBudget, "_beside", "load, left = more, left - count", "left -= count"),
        test_round_budget.test_each_prompt_of_a_round_is_priced_where_it_stands,
    ),
    Bug(
        "drafts are priced as if they were behind nothing",
        slip(RoundBudget, "_beside", "chunk_within(load, behind", "chunk_within(load, 0"),
        test_round_budget.test_drafts_are_priced_behind_their_texts,
    ),
    Bug(
        "a round is priced by a prompt that is read later",
        slip(
            Scheduler,
            "_reading",
            "merge(sorted(reading, key=rank_of), self._entering(), key=rank_of)",
            "chain(sorted(reading, key=rank_of), self._entering())",
        ),
        test_promises.test_a_round_is_priced_by_the_prompt_that_is_read_first,
    ),
    Bug(
        "a prompt that is late either way delays all others",
        slip(RoundBudget, "_is_saved", "fast_s * ahead <= prompt", "prompt"),
        test_round_budget.test_a_first_token_in_danger_takes_as_long_a_round_as_the_texts_can_afford,
    ),
    Bug(
        "a first token is saved at the cost of others' tokens",
        slip(RoundBudget, "tokens", "rows.tpot_s + rows.spare_s", "rows.tpot_s + 1.0"),
        test_round_budget.test_a_first_token_in_danger_takes_as_long_a_round_as_the_texts_can_afford,
    ),
    Bug(
        "texts are paused for a first token that is hardly sooner so",
        slip(RoundBudget, "_is_saved", "LARGE_GAIN_MIN * fast_s", "fast_s"),
        test_round_budget.test_texts_are_not_paused_where_it_saves_little,
    ),
    Bug(
        "the mildest promise rules a round",
        slip(scheduler, "decoding_rows", "min(one.promise.tpot for", "max(one.promise.tpot for"),
        test_promises.test_a_round_is_no_longer_than_a_request_of_it_was_promised,
    ),
    Bug(
        "tokens are due from the arrival on",
        slip(Sequence, "keep_time", "now_s, self.generated", "self.arrived_s, self.generated + 1"),
        test_promises.test_tokens_ahead_of_their_time_can_be_afforded,
    ),
    Bug(
        "whose first token is due first makes no difference",
        slip(RunningSet, "submit", "patience(sequence, self.now_s)", "0"),
        test_promises.test_the_first_token_that_is_due_first_comes_first,
    ),
    Bug(
        "who was promised nothing waits for all who were",
        slip(running_set, "patience", "return PATIENCE_ROUNDS", "return 10**9"),
        test_promises.test_who_was_promised_nothing_waits_for_so_many_rounds_of_others_and_no_longer,
    ),
    Bug(
        "a deadline is no reason to hurry",
        slip_property(Sequence, "due_s", "min(self.arrived_s + ttft, self.expires_s)", "inf"),
        test_promises.test_the_first_token_that_is_due_first_comes_first,
    ),
    Bug(
        "a request waits behind its deadline",
        slip(turning_away, "expired", "one.expires_s <= now_s", "one.expires_s <= now_s - 1.0"),
        stories,
    ),
    Bug(
        "a text breaks off at its deadline",
        slip(turning_away, "expired", " and not one.begun", ""),
        stories,
    ),
    Bug(
        "a text breaks off whose sibling has begun",
        slip_property(Sequence, "begun", "self.leader is not None", "False"),
        test_promises.test_a_choice_whose_sibling_has_begun_is_finished_too,
    ),
    Bug(
        "each choice of a request has a last word",
        slip(turning_away, "expired", "setdefault(one.request_id", "setdefault(str(one.choice)"),
        test_promises.test_all_choices_of_a_request_end_with_one_last_word,
    ),
    Bug(
        "a deadline is noticed with the next message",
        slip(Cache, "_messages", "if expires_s == inf", "if True"),
        lambda: test_deadlines.test_a_deadline_passes_though_the_device_is_stuck("trio"),
    ),
    Bug(
        "a text that had begun before a crash has a deadline after it",
        slip(Cache, "_sequence", "any(encoded.committed) or bool(encoded.ended)", "False"),
        lambda: test_deadlines.test_a_request_that_had_a_token_before_a_crash_has_begun(
            ((7,), ()), (), True
        ),
    ),
    Bug(
        "a crash gives a request its time anew",
        slip(Entry, "resubmission", "arrived_s=self.submit.arrived_s", "arrived_s=None"),
        test_deadlines.test_a_request_keeps_its_time_over_a_crash,
    ),
    Bug(
        "what a client waited before it came here is forgotten",
        slip(Cache, "_sequence", "came_s - options.waited_s", "came_s"),
        test_deadlines.test_time_is_counted_from_where_the_client_came,
    ),
    Bug(
        "a request that was not served stays with the actors",
        slip(Ledger, "_release", 'event.kind != "refused"', 'event.kind == "failed"'),
        lambda: test_deadlines.test_the_actors_are_told_to_forget_a_request_that_was_not_served(
            "slo_unmet"
        ),
    ),
    Bug(
        "who is late delays the others",
        slip(
            test_promises,
            "late_texts",
            "            continue\n        ahead +=",
            "            pass\n        ahead +=",
        ),
        test_promises.test_who_is_late_delays_nobody,
    ),
    Bug(
        "a request comes to its first token without a row",
        slip(test_promises, "late_texts", "rows_s[0] if rows_s else 0.0", "0.0"),
        test_promises.test_a_request_waits_for_a_row,
    ),
    Bug(
        "what is cached is read once more, or so it is assumed",
        slip(test_promises, "late_texts", "first_s -= pace", "first_s -= 0.0 * pace"),
        test_promises.test_what_is_cached_need_not_be_read,
    ),
    Bug(
        "a late request is put back again and again",
        slip(turning_away, "late_texts", "one.demoted or ", ""),
        test_promises.test_a_late_request_is_put_behind_those_of_its_priority_once,
    ),
    Bug(
        "a text that has begun is refused",
        slip(turning_away, "late_texts", "one.begun or ", ""),
        test_promises.test_a_request_that_has_begun_is_not_refused,
    ),
    Bug(
        "requests are refused though none is to be",
        slip(TurningAway, "words", 'self.policy == "refuse"', "True"),
        stories,
    ),
    Bug(
        "a long prompt is refused for ever",
        slip(TurningAway, "words", " and not late.is_out_of_reach", ""),
        test_promises.test_a_promise_that_an_idle_server_could_not_keep_is_no_reason_to_refuse,
    ),
    Bug(
        "drafts get slots without blocks",
        slip(RoundPlan, "add_row", "blocks_for(end + fits)", "blocks_for(end)"),
        stories,
    ),
    Bug(
        "a long prompt overruns the round",
        slip(RoundPlan, "add_chunk", "min(sequence.unread, self.tokens_left)", "sequence.pending"),
        stories,
    ),
    Bug(
        "a draft goes beyond the last token that was asked for",
        slip(Sequence, "draft_room", "left - 1", "left"),
        stories,
    ),
    Bug(
        "an opening takes generated tokens for the prompt",
        slip(Sequence, "new_sequence", "self.prompt_count", "len(self.tokens)"),
        stories,
    ),
    Bug(
        "a stop token does not end the text",
        slip(Sequence, "extend", "token in self.sampling.stop_token_ids", "False"),
        simulations(),
    ),
    Bug(
        "a token that the request stops at is forgotten",
        slip(Cache, "_sequence", "*options.stop_token_ids,", ""),
        simulations(),
    ),
    Bug(
        "a token that the request stops at is shown",
        slip(Detokenizer, "_choice", "frozenset(opened.options.stop_token_ids)", "frozenset()"),
        simulations(),
    ),
    Bug(
        "a text is one token too long",
        slip(
            Sequence,
            "extend",
            "self.generated >= self.tokens_max",
            "self.generated > self.tokens_max",
        ),
        simulations(),
    ),
    Bug(
        "a request that does not fit keeps what it found",
        slip(RunningSet, "enter", "sequence.table.release()", "pass"),
        stories,
    ),
    # segments
    Bug(
        "a copied segment is rotated as if it began the prompt",
        slip(Blending, "_copies", "else part.start", "else 0"),
        simulations(blended=0.8),
    ),
    Bug(
        "a segment half read is copied",
        slip(Blending, "commit", "state.read = read.stop", "state.read = state.part.length"),
        simulations(blended=0.8),
    ),
    Bug(
        "half a blend that was found is kept",
        slip(Blending, "begin", "if not self.is_found:", "if False:"),
        simulations(blended=0.8),
    ),
    Bug(
        "the choice is made before all is probed",
        slip(Blending, "commit", "if stop == self.stop:", "if True:"),
        simulations(blended=0.8),
    ),
    Bug(
        "blended blocks are found by their tokens alone",
        slip(BlockTable, "_next_name", "end > self._blended.start", "False"),
        simulations(blended=0.8),
    ),
    Bug(
        "a preempted prompt keeps its segments' blocks",
        slip(RunningSet, "_leave", "sequence.blending.reset()", "pass"),
        simulations(blended=0.8),
    ),
    Bug(
        "a prompt enters without room for its segments",
        slip(RunningSet, "_is_cramped", "sequence.blending.room", "0"),
        crowded_segments,
    ),
    Bug(
        "a prompt that is probed counts as computed",
        slip(RoundPlan, "add_row", "row.blend is None or not row.blend.probes", "True"),
        simulations(blended=0.8),
    ),
    Bug(
        "a prompt is read on before its deviations are known",
        slip(scheduler, "_goes_on", "or sequence.blends", ""),
        simulations(blended=0.8, run_ahead=True),
    ),
    # the distribution and the target
    Bug(
        "two positions share their noise",
        slip(sampling, "gumbel", "branch, position, token)))", "branch, position // 2, token)))"),
        joint_distribution,
    ),
    Bug(
        "the key of the noise forgets the position",
        slip(noise, "uniform", "(token // 4, position, branch, 0)", "(token // 4, 0, branch, 0)"),
        lambda: test_distribution.test_choices_follow_the_distribution_along_each_part_of_the_key(
            test_distribution.over_positions
        ),
    ),
    Bug(
        "every node of a row has the noise of the first",
        slip(
            toy.ToyTarget,
            "_decide",
            "next_token(context, prompt_count, sampling)",
            "choose(edited(logits(context), context[:prompt_count], context[prompt_count:],"
            " sampling), row.stop, sampling)",
        ),
        stories,
    ),
    Bug(
        "a draft is accepted without a look at its parent",
        slip(
            ToyTarget,
            "_decide",
            "children.get((path[-1] if path else -1, token))",
            "{token: node for (_, token), node in children.items()}.get(token)",
        ),
        simulations(),
    ),
    Bug(
        "an accepted path is not moved to where its tokens belong",
        slip(ToyTarget, "_decide", "enumerate(kept)", "enumerate([])"),
        stories,
    ),
    # recovery
    Bug(
        "copies and moves are made twice",
        slip(
            RoundsInFlight, "lost", "_without_moves(each) if state is Moves.DONE else each", "each"
        ),
        recoveries,
    ),
    Bug(
        "a row in vain is done again over blocks that are another's by now",
        slip(RoundsInFlight, "lost", "self._ended_after(n)", "frozenset()"),
        test_rounds_in_flight.test_a_row_in_vain_is_not_done_again,
    ),
    Bug(
        "a search goes on from blocks that are half moved",
        slip(RoundsInFlight, "lost", "Moves.HALF_DONE in states", "False"),
        test_rounds_in_flight.test_copies_are_made_once,
    ),
    Bug(
        "copies are noted before they are made",
        slip(MoveJournal, "begin", "round_.round_id << 1", "round_.round_id << 1 | 1"),
        test_rounds_in_flight.test_copies_are_made_once,
    ),
    Bug(
        "a new process is not told of the sequences that the last one knew",
        slip(RoundsInFlight, "lost", "set(self.known)", "set()"),
        recoveries,
    ),
    Bug(
        "a row's tokens are applied twice after a loss",
        slip(
            RoundsInFlight,
            "_row",
            "opening = self.known[row.sequence_id].again(row.new_token_ids)\n"
            "        return replace(row, new_sequence=opening, new_token_ids=())",
            "opening = self.known[row.sequence_id].again(row.new_token_ids)\n"
            "        return replace(row, new_sequence=opening)",
        ),
        recoveries,
    ),
    Bug(
        "a round is applied when it is sent, not when it is answered",
        slip(
            RoundsInFlight,
            "sent",
            "in_flight.append(proposal)",
            "in_flight.append(proposal); self._learn(proposal.round)",
        ),
        recoveries,
    ),
    Bug(
        "a fork is told as what it forked off",
        slip(RoundsInFlight, "_learn", "list(origin.tokens)", "origin.tokens"),
        recoveries,
    ),
    Bug(
        "a new process is told of endings that it never saw begin",
        slip(RoundsInFlight, "_told", "if each not in untold", "if True"),
        recoveries,
    ),
    Bug(
        "a new pipeline goes on with the last one's sequences",
        slip(RoundsInFlight, "forget", "self.known.clear()", "pass"),
        test_rounds_in_flight.test_a_new_pipeline_begins_with_no_sequence,
    ),
    # prefill apart from decode
    Bug(
        "a prompt is computed into a block to which a round still writes",
        slip(PrefillLane, "plan", "others.isdisjoint(self._own_blocks(one))", "True"),
        test_prefill_lane.test_a_block_is_left_alone_while_a_round_may_still_write_to_it,
    ),
    Bug(
        "a prompt is decoded before it is handed over",
        slip(
            PrefillLane,
            "plan",
            "members.append(sequence)",
            "members.append(sequence); sequence.computed += count; sequence.in_flight = 0",
        ),
        apart,
    ),
    Bug(
        "a block is freed while a prompt is computed into it",
        slip(PrefillLane, "_row", "sequence.in_flight += 1", "pass"),
        test_prefill_lane.test_a_long_prompt_is_computed_apart_but_for_its_last_token,
    ),
    Bug(
        "a prompt's last token is computed where nobody samples",
        slip(PrefillLane, "plan", "sequence.pending - 1", "sequence.pending"),
        apart,
    ),
    Bug(
        "a process that has gone keeps its prompts",
        slip(PrefillLane, "note", "sequence.in_flight -= 1", "pass"),
        apart,
    ),
    Bug(
        "prompts wait for processes that are away",
        slip(PrefillLane, "note", "sequence.apart = False", "pass"),
        test_prefill_lane.test_without_a_process_prompts_are_read_where_texts_are_decoded,
    ),
    Bug(
        "a new process is told to forget what the last one knew",
        slip(Prefiller, "_is_there", "self._told = ()", "pass"),
        apart,
    ),
    Bug(
        "a process that is lost while idle is not missed",
        slip(Prefiller, "_watch", "await self._have_model(inf)", "return"),
        lambda: test_prefill.test_a_process_that_dies_while_idle_is_started_again("trio"),
    ),
    Bug(
        "segments are read where no round of theirs is computed",
        slip(PrefillLane, "leaves", " and sequence.blending is None", ""),
        segments_apart,
    ),
    Bug(
        "a short prompt lines up behind long ones",
        slip(PrefillLane, "leaves", "self._is_long(sequence) or", "True or"),
        test_prefill_lane.test_short_prompts_take_turns_where_texts_are_decoded_rather_than_wait,
    ),
    # mailboxes
    Bug(
        "a letter is lost with the reader that was woken for it",
        slip(
            MailboxQueue,
            "arrival",
            "if arrived.is_set() and self.letters and self.receivers:",
            "if False:",
        ),
        test_mailbox.test_a_letter_for_a_task_that_asyncio_cancels_goes_to_the_next_reader,
    ),
    Bug(
        "a mailbox takes more than its bound",
        slip(MailboxQueue, "put", "len(self.letters) >= self.bound + self.waking", "False"),
        lambda: test_mailbox.test_a_full_mailbox_raises("trio"),
    ),
    Bug(
        "a reader that has run keeps the place of one that is to run",
        slip(MailboxQueue, "arrival", "self.waking -= 1", "pass"),
        lambda: test_mailbox.test_a_mailbox_that_was_waited_at_keeps_its_bound("trio"),
    ),
    # tier two
    Bug(
        "a loaded block is written where a round under way writes",
        slip(
            BlockPool,
            "adopt",
            "for each in self._free if each not in avoid",
            "for each in self._free[::-1]",
        ),
        lambda: test_tier_two.test_no_block_of_a_round_under_way_is_taken("trio"),
    ),
    Bug(
        "an evicted block is copied once it is overwritten",
        slip(WriteBehind, "evicted", "self.store.copy(block)", "self.store.copy(block ^ 1)"),
        second_tiers,
    ),
    Bug(
        "a loaded block is found before it is written",
        slip(Intake, "take_in", "self.store.put(block, content)", "pass"),
        second_tiers,
    ),
    Bug(
        "a store's block is looked for without what came before it",
        slip(BlockNamer, "chain", "self.name(name,", "self.name(ROOT,"),
        lambda: test_tier_two.test_a_prompt_finds_its_blocks_after_they_were_lost("trio"),
    ),
    Bug(
        "a cancel overtakes a request whose blocks are loaded",
        slip(Intake, "run", "message.request_id in self._parked", "False"),
        lambda: test_tier_two.test_no_cancel_overtakes_a_request_that_waits_for_blocks("trio"),
    ),
    Bug(
        "what made a sequence fail is kept",
        slip(BlockPool, "forget", "self.watcher.forgotten(name)", "pass"),
        lambda: test_tier_two.test_what_made_a_sequence_fail_is_not_kept("trio"),
    ),
    Bug(
        "a preempted sequence waits again and again for what the store has not",
        slip(SwapIn, "fetches", "sequence.fetches = sequence.tally.preemptions", "pass"),
        lambda: test_swap.test_it_waits_once_for_each_preemption("trio"),
    ),
    Bug(
        "a preempted sequence is never told that its blocks have come",
        slip(SwapIn, "run", "self._coming.discard(sequence.sequence_id)", "pass"),
        lambda: test_swap.test_a_preempted_sequence_has_its_blocks_loaded("trio"),
    ),
    Bug(
        "blocks are loaded for a sequence that has no room, and lost again",
        slip(SwapIn, "fetches", "pool.available < pool.blocks_for(len(sequence.tokens))", "False"),
        lambda: test_swap.test_nothing_is_loaded_for_a_sequence_without_room("trio"),
    ),
    Bug(
        "a store that hangs holds a preempted sequence up",
        slip(SwapIn, "run", "anyio.move_on_after(LOAD_S)", "anyio.move_on_after(100 * LOAD_S)"),
        lambda: test_swap.test_a_store_that_hangs_delays_it_and_no_more("trio"),
    ),
    # actors
    Bug(
        "a token is delivered twice after a restart",
        slip(Entry, "record", "extend(event.tokens)", "extend(event.tokens[1:])"),
        simulations(lost=0.05, recovers=False),
    ),
    Bug(
        "a choice that had ended comes back after a restart",
        slip(Entry, "resubmission", "tuple(sorted(self.ended))", "()"),
        simulations(lost=0.05, recovers=False),
    ),
    Bug(
        "a restart begins the text anew",
        slip(Entry, "resubmission", "tuple(map(tuple, self.committed))", "()"),
        simulations(lost=0.05, recovers=False),
    ),
    Bug(
        "a crash may come between the last text and its ending",
        endings_travel_alone,
        crashes,
    ),
    Bug(
        "a restart forgets half a code point and half a stop string",
        slip(Detokenizer, "_choice", "choice.push(token)", "pass"),
        test_detokenizer.test_a_crash_repeats_nothing_and_loses_nothing,
    ),
    Bug(
        "a place is not freed",
        slip(Ledger, "_forget", "self.on_closed()", "pass"),
        ledger_in_any_order,
    ),
    Bug(
        "a client that left twice is cancelled twice",
        slip(Ledger, "leave", " and not entry.cancelled", ""),
        ledger(
            test_ledger.test_a_client_that_leaves_is_cancelled_once_and_keeps_its_place_until_that_is_done
        ),
    ),
    Bug(
        "a sequence runs on behind its stop string",
        slip(Ledger, "_release", "isinstance(event, Ended) and event.stopped_by", "False"),
        ledger(test_ledger.test_a_stop_string_ends_the_sequence_behind_it_too),
    ),
    Bug(
        "a cancel overtakes its request",
        slip(Tokenizer, "_cancel", "if held is None", "if True"),
        lambda: test_tokenizer.test_no_cancel_overtakes_its_request("trio"),
    ),
    Bug(
        "a cancel that was held back is lost",
        slip(Tokenizer, "_serve", "self.cache.send_nowait(cancel)", "pass"),
        simulations(),
    ),
    Bug(
        "a stop string's beginning leaks",
        slip(stops, "_overlap", "len(stop) - 1", "len(stop) - 2"),
        simulations(),
    ),
    Bug(
        "the last stop string wins",
        slip(StopScanner, "push", "min(found)", "max(found)"),
        test_stops.test_what_is_let_through_depends_on_the_text_alone,
    ),
]


@pytest.fixture(autouse=True)
def nothing_remembered() -> Generator[None]:
    """A token that was computed without the bug, or with it, is none on the other side."""
    toy.forget()
    yield
    toy.forget()


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_a_planted_bug_is_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    # A broken actor restarts over and over, or nothing comes of it: give up soon.
    monkeypatch.setattr(RESTART_LIMIT, lambda **_: RestartLimit(failures_max=30))
    monkeypatch.setattr(loops, "DEADLINE_S", 5.0)
    bug.plant(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017  Whatever it is, it is noticed.
        bug.hunt()


def test_where_nothing_is_planted_giving_up_soon_catches_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other hunts without a plant are tests of their own: test_simulation, test_scheduler."""
    monkeypatch.setattr(RESTART_LIMIT, lambda **_: RestartLimit(failures_max=30))
    simulations(lost=0.05, recovers=False)()
    recoveries()
    apart()
