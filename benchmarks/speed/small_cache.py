"""What admission by expected lengths saves where the cache is small, on virtual time.

    python -m benchmarks.speed.small_cache [--requests 400] [--users 48]

The real scheduler runs over a device of which only the time matters. Prompts and answers are as
long as in chats (log-normal: half of the prompts under 60 tokens and half of the answers under 200,
a tenth over 300 and 700); the pool holds a fifth of what all users want at once. Printed are, for
admission by known tokens and by expected ones,

    tok/s        generated tokens a second of virtual time
    preempted    sequences that lost their blocks
    recomputed   tokens computed again, for each one generated
    TTFT, pause  p50 and p99 of the time to the first token and of a text's longest pause, seconds
"""

import argparse
from dataclasses import dataclass, field
from math import exp
from random import Random
from statistics import quantiles

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.prefix import BlockNamer
from draftwerk.cache.tables import BlockTable
from draftwerk.speculative.protocol.rounds import (
    NO_DRAFT,
    Decision,
    Round,
    StepReport,
    Verdict,
)
from draftwerk.speculative.sampling.params import Sampling
from draftwerk.speculative.scheduler.lengths import TextLengths
from draftwerk.speculative.scheduler.scheduler import RoundLimits, Scheduler
from draftwerk.speculative.sequence import Sequence

BLOCK, CONTEXT, STOP = 16, 4096, 0
STEP_S, TOKEN_S = 0.008, 0.0004
"""Of a step, and of each token in it: about those of the default model on two cores."""


@dataclass(slots=True)
class Text:
    """A request and its answer."""

    prompt: int
    answer: int
    begun_s: float = 0.0
    times_s: list[float] = field(default_factory=list[float])

    @property
    def pause_s(self) -> float:
        """The longest wait between two tokens."""
        pairs = zip(self.times_s, self.times_s[1:], strict=False)
        return max((then - first for first, then in pairs), default=0.0)


@dataclass(slots=True)
class VirtualServer:
    """A scheduler, and users who each ask one question after the other."""

    scheduler: Scheduler
    texts: list[Text]
    users: int
    now_s: float = 0.0
    _live: dict[int, Text] = field(default_factory=dict[int, Text])
    _asked: int = 0
    _namer: BlockNamer = field(default_factory=lambda: BlockNamer(b""))

    def run(self) -> None:
        """Serve every text."""
        while True:
            while len(self._live) < self.users and self._asked < len(self.texts):
                self._ask()
            round_ = self.scheduler.plan(self.now_s)
            if round_ is None:
                assert not self._live
                return
            self._step(round_)

    def _ask(self) -> None:
        text = self.texts[self._asked]
        self._asked += 1
        text.begun_s = self.now_s
        self._live[self._asked] = text
        # Every prompt is another one: what the prefix cache saves is not what is measured.
        tokens = [self._asked * 7919 + n for n in range(text.prompt)]
        self.scheduler.submit(
            Sequence(
                sequence_id=self._asked,
                request_id=str(self._asked),
                choice=0,
                tokens=tokens,
                prompt_count=len(tokens),
                sampling=Sampling(stop_token_ids=(STOP,)),
                tokens_max=CONTEXT - len(tokens),
                table=BlockTable(self.scheduler.pool, self._namer, ""),
                draft_max=0,
                arrived_s=self.now_s,
            )
        )

    def _step(self, round_: Round) -> None:
        tokens = sum(row.stop - row.start for row in round_.rows)
        self.now_s += STEP_S + TOKEN_S * tokens
        decisions: list[Decision] = []
        for row in round_.rows:
            text = self._live[row.sequence_id]
            if row.samples:
                text.times_s.append(self.now_s)
                ends = row.stop + 1 == text.prompt + text.answer
                decisions.append(Decision(tokens=(STOP if ends else 1,)))
            else:
                decisions.append(Decision())
        report = StepReport(token_count=tokens, device_ms=1e3 * (STEP_S + TOKEN_S * tokens))
        drafts = (NO_DRAFT,) * len(round_.rows)
        verdict = Verdict(round_.round_id, round_.pipeline_slot, tuple(decisions), report)
        for progress in self.scheduler.commit(verdict, drafts):
            if progress.finish_reason:
                del self._live[progress.sequence.sequence_id]


def chats(count: int, seed: int) -> list[Text]:
    """Return requests of log-normal lengths."""
    rng = Random(seed)

    def length(median: float, spread: float, most: int) -> int:
        return max(2, min(most, round(median * exp(rng.gauss(0.0, spread)))))

    return [Text(length(60, 1.25, 1500), length(200, 1.0, 2000)) for _ in range(count)]


def measure(given: argparse.Namespace, expects: bool) -> str:
    """Return one line of the table."""
    texts = chats(given.requests, given.seed)
    wanted = sum(text.prompt + text.answer for text in texts) / len(texts) * given.users
    blocks = max(CONTEXT // BLOCK, round(wanted / given.share / BLOCK))
    scheduler = Scheduler(
        BlockPool(blocks, BLOCK),
        RoundLimits(rows_max=64, draft_max=0),
        lengths=TextLengths() if expects else None,
    )
    server = VirtualServer(scheduler, texts, given.users)
    server.run()
    stats = scheduler.stats
    firsts = quantiles((text.times_s[0] - text.begun_s for text in texts), n=100)
    pauses = quantiles((text.pause_s for text in texts), n=100)
    return (
        f"{'expected' if expects else 'known':9s} {stats.generated_tokens / server.now_s:7.1f} "
        f"{stats.preemptions:10d} {stats.recomputed_tokens / stats.generated_tokens:11.3f} "
        f"{firsts[49]:6.2f} {firsts[98]:6.2f} {pauses[49]:6.2f} {pauses[98]:6.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--users", type=int, default=48)
    parser.add_argument("--share", type=float, default=5.0, help="of what is wanted, one part in")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print("admission   tok/s  preempted  recomputed   TTFT p50, p99  pause p50, p99")
    for expects in (False, True):
        print(measure(given, expects), flush=True)


if __name__ == "__main__":
    main()
