"""Targets made with their draft sources."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from time import perf_counter

from draftwerk.model.native.gumbel import fastest
from draftwerk.model.step.draft_runner import DraftRunner
from draftwerk.model.step.loaded_model import LoadedModel
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.costs.roofline import Roofline
from draftwerk.speculative.costs.step_cost import MeasuredStep
from draftwerk.speculative.drafting.drafted_rounds import DraftingStep
from draftwerk.speculative.drafting.drafted_sequences import FOLLOWED_MAX
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.options.beams.search_drafts import SearchDrafts
from draftwerk.speculative.rounds import Proposal, Verdict
from draftwerk.speculative.sources.store import OutputStores


@dataclass(slots=True, frozen=True)
class SpeculativeRunner:
    """A target and its draft sources."""

    rounds: DraftingStep
    runner: TargetRunner
    drafter: DraftRunner | None = None

    def step(self, proposal: Proposal) -> Verdict:
        """Draft for a round and compute it."""
        return self.rounds.step(proposal)

    def check(self) -> None:
        """Assert that both sides know the same of each sequence."""
        self.runner.check()
        self.rounds.check(self.runner.known_counts())
        if self.drafter is not None:
            self.drafter.check()


class SpeculativeRunners:
    """Makes targets that draft; what is learnt from finished outputs outlives each of them."""

    def __init__(
        self,
        runner: Callable[[], TargetRunner],
        sources: Iterable[str],
        measured: Sequence[MeasuredStep],
        roofline: Roofline | None,
        draft_model: LoadedModel | None = None,
    ) -> None:
        """`sources` that the target has no draft head for are left out."""
        self._runner = runner
        self._sources = tuple(sources)
        self._measured, self._roofline = measured, roofline
        self._draft_model = draft_model
        self._stores, self._noise = OutputStores(), fastest()

    def make(self) -> SpeculativeRunner:
        """Return a target without any sequence."""
        runner = self._runner()
        head = runner.parts.draft_head
        methods = tuple(name for name in self._sources if name != "head" or head is not None)
        proposer = Proposer(
            methods,
            self._measured,
            self._stores,
            self._noise,
            roofline=self._roofline,
            clock=perf_counter,
            groups=SearchDrafts,
            followed_max=inf if head is None or head.windows is None else FOLLOWED_MAX,
        )
        if self._draft_model is None:
            return SpeculativeRunner(DraftingStep(proposer, runner.step), runner)
        drafter = DraftRunner(self._draft_model)
        step = DraftingStep(proposer, runner.step, drafter.propose)
        return SpeculativeRunner(step, runner, drafter)
