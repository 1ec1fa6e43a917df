"""A scheduler, a toy target in real pages, and clients that search with beams beside others.

After every step the ledger of blocks balances; each text and score is the naive search's over the
toy, each other request's text the plain model's.
"""

from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from random import Random

import msgspec

from draftwerk.speculative.options.beams.beam_group import BeamGroup
from draftwerk.speculative.options.beams.decisions import BeamRules
from draftwerk.speculative.options.beams.sampled import new_beams
from draftwerk.speculative.options.beams.search import SEARCH_ROOM, BeamSearch
from draftwerk.speculative.options.extended_sequence import extended
from draftwerk.speculative.options.service.service_policy import ServicePolicy
from draftwerk.speculative.request import SequenceRequest
from draftwerk.speculative.rounds import Proposal, Round
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.scheduler import RoundLimits
from draftwerk.speculative.sequence import Sequence
from tests.speculative.scheduling.scheduler_world import RoundWorld
from tests.support.beams.naive_beams import Text
from tests.support.toy import STOP, VOCAB, head_candidates, plain_beams, plain_text


@dataclass(eq=False)
class WantedText:
    """One request as its client sees it."""

    sequence: Sequence
    want: list[tuple[Text, float | None]]
    """Per choice, the text and the score it must have."""
    got: list[list[int]] = field(default_factory=list)
    scores: list[float | None] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    cancelled: bool = False

    def __post_init__(self) -> None:
        self.got = [[] for _ in self.want]
        self.reasons = ["" for _ in self.want]
        self.scores = [None for _ in self.want]

    @property
    def over(self) -> bool:
        return self.cancelled or all(self.reasons)


class BeamWorld(RoundWorld):
    """Clients that search, and others."""

    def __init__(
        self,
        rng: Random,
        block_count: int,
        block_size: int,
        limits: RoundLimits,
        state_slots: int = 0,
    ) -> None:
        super().__init__(rng, block_count, block_size, limits, state_slots, ServicePolicy)
        self.wanteds: list[WantedText] = []
        self.blocks_peak = 0
        self._branch_ids = count(-1, -1)

    def submit(self, prompt: list[int], sampling: Sampling, tokens_max: int) -> WantedText:
        """Submit an ordinary request."""
        draft_max = min(4, self.scheduler.limits.draft_max)
        sequence = self._sequence(prompt, sampling, tokens_max, draft_max)
        text = tuple(plain_text(prompt, sampling, tokens_max))
        return self._wish(WantedText(sequence, [(text, None)]))

    def search(
        self,
        prompt: list[int],
        sampling: Sampling,
        rules: BeamRules,
        choices: int = 1,
        draft_max: int = 8,
    ) -> WantedText:
        """Submit a beam search."""
        slots = 2 * rules.width
        draft_max = min(draft_max, SEARCH_ROOM * self.scheduler.limits.draft_max)
        sequence = self._sequence(prompt, sampling, rules.tokens_max, draft_max, slots)
        search = BeamSearch(new_beams(rules), lambda: next(self._branch_ids), choices)
        found = plain_beams(prompt, sampling, rules)
        root = extended(sequence, BeamGroup, search=search)
        return self._wish(WantedText(root, [found[choice] for choice in range(choices)]))

    def random_request(self) -> None:
        rng, scheduler = self.rng, self.scheduler
        shared = [1 + n % 3 for n in range(rng.choice([0, 6, 9]))]
        prompt = [*shared, *(rng.randrange(1, VOCAB) for _ in range(rng.randint(1, 4)))]
        tokens_max = rng.choice([1, 2, 7, 12])
        stops = rng.choice([(STOP,), (STOP, 5), ()])
        sampling = Sampling(
            temperature=0.0,
            repetition_penalty=rng.choice([1.0, 1.3]),
            logit_bias=rng.choice([(), ((STOP, 3.0),)]),
            tokens_min=rng.choice([0, 3]),
            stop_token_ids=stops,
            logprobs=rng.choice([-1, 2]),
        )
        if rng.random() < 0.4:
            self.submit(prompt, sampling, tokens_max)
            return
        width = rng.choice([2, 2, 3, 4])
        seed = rng.randrange(100) if rng.random() < 0.3 else None
        if seed is not None:
            temperature, top_k = rng.choice([0.5, 1.0, 2.0]), rng.choice([0, 5])
            sampling = msgspec.structs.replace(
                sampling, temperature=temperature, top_k=top_k, seed=seed, logprobs=-1
            )
        rules = BeamRules(
            width=width,
            tokens_max=tokens_max,
            stop_token_ids=stops,
            length_penalty=rng.choice([0.0, 1.0, -1.0]),
            early_stopping=rng.random() < 0.5,
            seed=seed,
            prompt_count=len(prompt),
        )
        size, pool = scheduler.pool.block_size, scheduler.pool
        shared_blocks = (len(prompt) - 1) // size
        tails = width * (pool.blocks_for(len(prompt) + tokens_max) - shared_blocks)
        if shared_blocks + tails <= pool.capacity and width <= scheduler.limits.tokens_max:
            self.search(prompt, sampling, rules, rng.choice([1, 1, width]), rng.choice([0, 4, 8]))

    def plan(self) -> bool:
        """Plan a round and let the target run it; returns False if there was none."""
        round_ = self.scheduler.plan()
        if round_ is None:
            assert self.verdicts or self.scheduler.idle, "the scheduler is stuck"
            return False
        rows = sum(row.options.branch is not None for row in round_.rows)
        self.counters["branches with others"] += 0 < rows < len(round_.rows)
        self.counters["copies"] += len(round_.copies)
        self.counters["moves"] += len(round_.moves)
        groups = Counter(
            row.options.branch.group_id for row in round_.rows if row.options.branch and row.samples
        )
        for wanted in self.wanteds:
            root = wanted.sequence
            if root.sequence_id in groups:
                assert isinstance(root, BeamGroup)
                assert groups[root.sequence_id] == len(root.search.members), "not all or none"
                self._check_head_candidates(root.search, round_)
        computed = sum(row.stop - row.start + row.draft_max for row in round_.rows)
        assert computed <= self.scheduler.limits.tokens_max, "the token budget is exceeded"
        drafts = self.guesser.propose(round_)
        verdict = self.target.step(Proposal(round_, drafts))
        self.verdicts.append((round_, drafts, verdict))
        self.check()
        return True

    def _check_head_candidates(self, search: BeamSearch, round_: Round) -> None:
        """Assert that the head's candidates for a text have come to the row of that text."""
        texts = {member.sequence_id: member.tokens for member in search.members}
        for row in round_.rows:
            if (
                row.options.branch is not None
                and row.options.branch.head_candidates
                and row.sequence_id in texts
            ):
                assert not row.options.branch.known, "the target has spoken already"
                assert row.options.branch.head_candidates == head_candidates(texts[row.sequence_id])
                self.counters["head_candidates"] += 1

    def commit(self) -> None:
        """Hand the oldest verdict back and be the clients."""
        _, drafts, verdict = self.verdicts.popleft()
        for progress in self.scheduler.commit(msgspec.structs.replace(verdict, drafts=drafts)):
            (wanted,) = (
                each
                for each in self.wanteds
                if each.sequence.request.request_id == progress.sequence.request.request_id
            )
            choice = progress.sequence.request.choice
            assert not wanted.cancelled and not wanted.reasons[choice], "after its last word"
            assert len(progress.origins) == len(progress.tokens)
            if progress.sequence.request.sampling.logprobs >= 0:
                assert len(progress.tokens) == len(progress.logprobs)
            wanted.got[choice] += progress.tokens
            wanted.reasons[choice] = progress.finish_reason
            wanted.scores[choice] = progress.sequence.tally.further.get("score")
            text, _ = wanted.want[choice]
            assert tuple(wanted.got[choice]) == text[: len(wanted.got[choice])], "another text"
            if progress.finish_reason:
                self._compare(wanted, choice)
        self.counters["accepted steps"] = self.scheduler.stats.accepted_tokens
        self.check()

    def cancel(self, wanted: WantedText) -> None:
        wanted.cancelled = True
        self.scheduler.cancel(wanted.sequence.request.request_id)
        self.check()

    def check(self) -> None:
        self.scheduler.check()
        self.blocks_peak = max(self.blocks_peak, self.scheduler.pool.used)

    def run(self) -> None:
        """Run every request to its end; none may starve."""
        for _ in range(3000):
            if self.scheduler.idle and not self.verdicts:
                break
            while self.plan():
                pass
            if self.verdicts:
                self.commit()
        assert self.scheduler.idle, "a sequence starved"
        assert self.scheduler.pool.used == 0, "a block was kept"
        assert self.states is None or self.states.pool.used == 0, "a state was kept"
        assert all(wanted.over for wanted in self.wanteds)
        self.counters["preemptions"] += self.scheduler.stats.preemptions
        self.counters["preempted searches"] += sum(
            wanted.sequence.tally.preemptions
            for wanted in self.wanteds
            if isinstance(wanted.sequence, BeamGroup)
        )
        self._flush()

    def _flush(self) -> None:
        """Run one request more, so that the target is sent all finished ids."""
        last = self.submit([1], Sampling(temperature=0.0), 1)
        assert self.plan()
        assert self.target.histories.keys() == {last.sequence.sequence_id}, (
            "a finished sequence is held"
        )
        self.commit()

    def _compare(self, wanted: WantedText, choice: int) -> None:
        text, score = wanted.want[choice]
        sampling = wanted.sequence.request.sampling
        stopped = text[-1] in sampling.stop_token_ids
        assert tuple(wanted.got[choice]) == text, "not the whole text"
        assert wanted.reasons[choice] == ("stop" if stopped else "length")
        if score is not None:
            found = wanted.scores[choice]
            assert found is not None and abs(found - score) < 1e-9
            self.counters["searches"] += choice == 0
            self.counters["drawn"] += sampling.temperature > 0.0

    def _sequence(
        self,
        prompt: list[int],
        sampling: Sampling,
        tokens_max: int,
        draft_max: int,
        state_slots: int = 0,
    ) -> Sequence:
        return Sequence(
            sequence_id=len(self.wanteds) + 1,
            request=SequenceRequest(
                request_id=f"r{len(self.wanteds)}",
                choice=0,
                prompt_count=len(prompt),
                sampling=sampling,
                tokens_max=tokens_max,
                draft_max=draft_max,
            ),
            tokens=list(prompt),
            memory=self.scheduler.pools.memory(self.namer, "", len(prompt), slots_min=state_slots),
        )

    def _wish(self, wanted: WantedText) -> WantedText:
        self.wanteds.append(wanted)
        self.scheduler.submit(wanted.sequence)
        self.check()
        return wanted


def story(seed: int, steps: int = 50, state_slots: int = 0) -> Counter[str]:
    """Run one random story to its end; returns what happened in it."""
    rng = Random(seed)
    limits = RoundLimits(
        pipeline_depth=rng.choice([1, 2]),
        rows_max=rng.choice([2, 4, 8]),
        tokens_max=rng.choice([5, 12, 40]),
        draft_max=rng.choice([0, 4, 8]),
    )
    world = BeamWorld(rng, rng.choice([14, 20, 40]), rng.choice([2, 3, 4]), limits, state_slots)
    for _ in range(steps):
        match rng.choice(["submit", "plan", "plan", "commit", "commit", "cancel"]):
            case "submit" if sum(not wanted.over for wanted in world.wanteds) < 6:
                world.random_request()
            case "plan":
                world.plan()
            case "commit" if world.verdicts:
                world.commit()
            case "cancel" if rng.random() < 0.3:
                for wanted in rng.sample(world.wanteds, min(1, len(world.wanteds))):
                    if not wanted.over:
                        world.cancel(wanted)
                        world.counters["cancelled"] += 1
    world.run()
    return world.counters
