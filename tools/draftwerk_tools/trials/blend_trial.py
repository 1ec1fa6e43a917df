"""One prompt at a time through scheduler and runner, without an engine: what blending changes.

It is how a blend's quality is measured, and how long its first token takes.
"""

from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from time import perf_counter
from typing import NamedTuple

from msgspec.structs import replace
from torch import Tensor

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.memory import CachePools
from draftwerk.cache.tables import BlockNamer
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.options.blend.blended_prompt import BlendedPrompt
from draftwerk.speculative.options.blend.blending import Blending, blended
from draftwerk.speculative.options.blend.rules import canonical_parts
from draftwerk.speculative.options.extended_sequence import extended
from draftwerk.speculative.request import SequenceRequest
from draftwerk.speculative.requests.declared_segments import Blend
from draftwerk.speculative.rounds import NO_DRAFT, Proposal, chain
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.scheduler import RoundLimits, Scheduler
from draftwerk.speculative.sequence import Sequence

GREEDY = Sampling(temperature=0.0)
TEXT_MAX = 2**20
"""No end: a sequence that was read stays open until it is closed."""


class TrialReading(NamedTuple):
    """A prompt that was read, and its first token."""

    sequence: Sequence
    first_token_s: float
    rounds: int


@dataclass(slots=True)
class BlendTrial:
    """A runner over its own pages, and a pool that keeps what was read between prompts."""

    runner: TargetRunner
    tokens_max: int = 256
    """The most tokens of a round."""
    scheduler: Scheduler = field(init=False)
    namer: BlockNamer = field(default_factory=lambda: BlockNamer(b"trial"))
    salt: int = 0
    """The salt of the names of blended blocks."""
    _ids: "count[int]" = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        pages = self.runner.pages
        self.scheduler = Scheduler(
            CachePools(BlockPool(pages.keys.shape[1], pages.block_size)),
            RoundLimits(tokens_max=self.tokens_max),
        )

    def forget(self) -> None:
        """Begin with an empty pool."""
        assert self.scheduler.idle
        self.__post_init__()

    def sequence(
        self, prompt: Tokens[int], blend: Blend | None, tokens_max: int, space: str = ""
    ) -> Sequence:
        """Return a prompt as a sequence, with its segments if it has some."""
        memory = partial(self.scheduler.pools.memory, self.namer, space)
        size = self.scheduler.pool.block_size
        parts = () if blend is None else canonical_parts(blend, len(prompt), size)
        place, blending = None, None
        if blend is not None and parts:
            place = blended(blend, prompt, parts)
            place = place._replace(name=f"{place.name} {self.salt}")
            blending = Blending(blend, parts, memory)
        number = next(self._ids)
        text = Sequence(
            sequence_id=number,
            request=SequenceRequest(
                request_id=str(number),
                choice=0,
                prompt_count=len(prompt),
                sampling=GREEDY,
                tokens_max=tokens_max,
                draft_max=0,
            ),
            tokens=list(prompt),
            memory=memory(len(prompt), place),
        )
        return text if blending is None else extended(text, BlendedPrompt, blending=blending)

    def read(
        self, prompt: Tokens[int], blend: Blend | None = None, tokens: int = 1
    ) -> TrialReading:
        """Read a prompt and generate; the sequence stays open, so its pages can be looked at."""
        sequence = self.sequence(prompt, blend, TEXT_MAX)
        self.scheduler.submit(sequence)
        begun, first, rounds = perf_counter(), 0.0, 0
        while sequence.generated < tokens:
            self.step()
            rounds += 1
            if sequence.generated and not first:
                first = perf_counter() - begun
        return TrialReading(sequence, first, rounds)

    def step(self) -> None:
        """Plan a round, compute it and take in the verdict."""
        round_ = self.scheduler.plan()
        assert round_ is not None, "nothing can run"
        drafts = (NO_DRAFT,) * len(round_.rows)
        verdict = self.runner.step(Proposal(round_, drafts))
        for update in self.scheduler.commit(replace(verdict, drafts=drafts)):
            assert not update.error, update.error

    def release_blends(self) -> None:
        """Have blended prompts not found whole: their segments stay, as do exact prefixes."""
        self.salt += 1

    def close(self, sequence: Sequence) -> None:
        """Give back what a sequence holds."""
        self.scheduler.cancel(sequence.request.request_id)

    def answer(self, prompt: Tokens[int], tokens: int) -> list[int]:
        """Return the exact text after a prompt, greedily decoded."""
        found = self.read(prompt, None, tokens).sequence
        self.close(found)
        return found.tokens[len(prompt) : len(prompt) + tokens]

    def logits(self, sequence: Sequence, answer: Tokens[int]) -> Tensor:
        """Return float32 logits before each token of an answer and after the last, [1 + n, V]."""
        prompt = sequence.tokens[: sequence.request.prompt_count]
        assert sequence.memory.reserve(len(prompt) + len(answer))
        builder = BatchBuilder(self.runner.pages.block_size)
        last = len(prompt) - 1
        assert sequence.memory.make_writable(last) == [], "blocks of the answer are shared"
        draft = chain(tuple(answer), "answer")
        builder.add(prompt[-1:], last, tuple(sequence.memory.table.blocks), draft, samples=True)
        return self.runner.parts.run(builder)
