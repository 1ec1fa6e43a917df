"""The real scheduler over a device of which only the time matters, on virtual time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from draftwerk.cache.tables import BlockNamer
from draftwerk.speculative.costs.roofline import MachineRates, Roofline
from draftwerk.speculative.costs.work import NO_LOAD, ModelShape, StepLoad
from draftwerk.speculative.request import SequenceRequest
from draftwerk.speculative.requests.slo import NO_SLO, Deadlines, Slo
from draftwerk.speculative.rounds import NO_DRAFT, Decision, Round, Verdict
from draftwerk.speculative.row_parts.step_report import StepReport
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.scheduler import Scheduler
from draftwerk.speculative.sequence import Sequence

STOP = 0
SHAPE = ModelShape(
    layer_count=30,
    hidden_size=576,
    num_heads=9,
    num_kv_heads=3,
    head_size=64,
    ffn_size=1536,
    vocab_size=49152,
    weight_bytes=1.0625,
    kv_bytes=2.0,
)
RATES = MachineRates(flops_per_s=7e11, bytes_per_s=2.6e10, attention_flops_per_s=2.1e11)
ROOFLINE = Roofline(shape=SHAPE, rates=RATES)
"""The default model in int8, on a device like two cores with AVX-512."""


@dataclass(slots=True)
class VirtualText:
    """A request and its answer; counts of tokens."""

    prompt: int
    answer: int
    arrives_s: float = 0.0
    """When its client comes; of a user who has asked before, when that was answered."""
    slo: Slo = NO_SLO
    priority: int = 0
    limit: int = 0
    """Of its tokens, as the server knows it; 0: the context."""
    leaves_s: float = inf
    """When its client goes, whatever it was sent."""
    begun_s: float = 0.0
    times_s: list[float] = field(default_factory=list[float])
    is_refused: bool = False

    @property
    def pause_s(self) -> float:
        """The longest wait between two tokens."""
        pairs = zip(self.times_s, self.times_s[1:], strict=False)
        return max((then - first for first, then in pairs), default=0.0)

    @property
    def first_s(self) -> float:
        """The time to the first token."""
        return self.times_s[0] - self.begun_s

    @property
    def token_s(self) -> float:
        """The mean time between tokens."""
        return (self.times_s[-1] - self.times_s[0]) / max(1, len(self.times_s) - 1)


@dataclass(slots=True)
class VirtualServer:
    """A scheduler, and clients: so many users, each with one question after the other, or, with
    none, requests that come when they come."""

    scheduler: Scheduler
    texts: list[VirtualText]
    step_ms: Callable[[StepLoad], float]
    context_max: int
    users: int = 0
    gap_ms: float = 0.0
    """Between two steps."""
    now_s: float = 0.0
    _live: dict[int, VirtualText] = field(default_factory=dict[int, VirtualText])
    _asked: int = 0
    _namer: BlockNamer = field(default_factory=lambda: BlockNamer(b""))

    def run(self) -> None:
        """Serve every text."""
        while True:
            while self._asked < len(self.texts) and self._comes(self.texts[self._asked]):
                self._ask(self.texts[self._asked])
            for rejection in self.scheduler.reject(self.now_s):
                self._live.pop(rejection.sequence.sequence_id).is_refused = True
            self._let_go()
            round_ = self.scheduler.plan(self.now_s)
            if round_ is not None:
                self._step(round_)
            elif self._asked < len(self.texts):
                self.now_s = max(self.now_s, self.texts[self._asked].arrives_s)
            else:
                assert not self._live
                return

    def _let_go(self) -> None:
        """Cancel the requests whose clients have gone."""
        for number in [number for number, one in self._live.items() if one.leaves_s <= self.now_s]:
            self.scheduler.cancel(str(number))
            del self._live[number]

    def _comes(self, text: VirtualText) -> bool:
        if self.users:
            return len(self._live) < self.users
        return text.arrives_s <= self.now_s

    def _ask(self, text: VirtualText) -> None:
        self._asked += 1
        text.begun_s = self.now_s if self.users else text.arrives_s
        self._live[self._asked] = text
        # Every prompt is another one: what the prefix cache saves is not what is measured.
        tokens = [self._asked * 7919 + n for n in range(text.prompt)]
        self.scheduler.submit(
            Sequence(
                sequence_id=self._asked,
                request=SequenceRequest(
                    request_id=str(self._asked),
                    choice=0,
                    prompt_count=len(tokens),
                    sampling=Sampling(stop_token_ids=(STOP,)),
                    tokens_max=text.limit or self.context_max - text.prompt,
                    draft_max=0,
                    priority=text.priority,
                ),
                tokens=tokens,
                memory=self.scheduler.pools.memory(self._namer, ""),
                times=Deadlines(
                    slo=text.slo,
                    arrived_s=text.begun_s,
                ),
            )
        )

    def _step(self, round_: Round) -> None:
        load = NO_LOAD
        for row in round_.rows:
            load = load.with_row(row.start, row.stop - row.start, int(row.samples))
        ms = self.step_ms(load)
        self.now_s += 1e-3 * (self.gap_ms + ms)
        decisions: list[Decision] = []
        for row in round_.rows:
            text = self._live[row.sequence_id]
            if row.samples:
                text.times_s.append(self.now_s)
                ends = row.stop + 1 == text.prompt + text.answer
                decisions.append(Decision(tokens=(STOP if ends else 1,)))
            else:
                decisions.append(Decision())
        report = StepReport(load=load, device_ms=ms)
        drafts = (NO_DRAFT,) * len(round_.rows)
        verdict = Verdict(round_.round_id, round_.pipeline_slot, tuple(decisions), report, drafts)
        for progress in self.scheduler.commit(verdict, self.now_s):
            if progress.finish_reason:
                del self._live[progress.sequence.sequence_id]
