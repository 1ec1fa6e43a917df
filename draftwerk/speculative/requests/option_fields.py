"""The fields of options in what a request asks for."""

from typing import Annotated, Self

import msgspec
from msgspec import Meta

from draftwerk.speculative.parameters.bounds import (
    WIDTH_MAX,
    LengthPenalty,
    LogprobCount,
    LongName,
    TokenIds,
)
from draftwerk.speculative.requests.declared_segments import Blend
from draftwerk.speculative.requests.pooling import PoolingParams
from draftwerk.speculative.requests.slo import TIME_MAX_S, Slo


class OptionFields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Beam searches, scored and pooled prompts, forced tokens, adapters, deadlines, segments.

    Each has the default of a request that does not ask for it.
    """

    beam_width: Annotated[int, Meta(ge=1, le=WIDTH_MAX)] = 1
    """Above 1 the choices are the best texts of a beam search; above temperature 0, texts drawn
    without replacement."""
    length_penalty: LengthPenalty = 1.0
    """The exponent of a beam search: a log-probability is divided by the length to this power."""
    early_stopping: bool = False
    """Whether, in a beam search, as many finished texts as the beam is wide are enough."""
    shows_hypotheses: bool = False
    """Whether deltas carry the best text of a beam search so far, which is not final."""
    prompt_logprobs: LogprobCount = -1
    """Alternatives to report beside the log-probability of each prompt token; -1 reports none."""
    scored_from: Annotated[int, Meta(ge=0)] = 0
    """The first prompt token that is reported: those before it may come from the prefix cache."""
    pooling: PoolingParams | None = None
    """The reading wanted of a prompt that is not continued; then no other field shapes a text."""
    forced_tokens: TokenIds = msgspec.field(default=(), name="given")
    """The tokens that a text is taken to have: they are drafted and verified like any draft."""
    adapter: LongName = ""
    """Digest of the LoRA adapter that the text is computed with; empty for none."""
    slo: Slo | None = None
    """The promise to its reader; None means what the server promises everybody."""
    deadline_s: Annotated[float, Meta(ge=0, le=TIME_MAX_S)] = 0.0
    """From its arrival until it fails unless its text has begun; 0 means never."""
    waited_s: Annotated[float, Meta(ge=0)] = 0.0
    """How long its reader had waited already when it came to the engine."""
    blend: Blend | None = None
    """How declared segments of the prompt are reused. Of a prompt in tokens it has their spans;
    else the prompt has them."""

    @property
    def is_one_sequence(self) -> bool:
        """Whether one sequence makes all choices, as a beam search does."""
        return self.beam_width > 1

    def own_space(self, name_space: str) -> str:
        """Return the name space of what is computed with the request's adapter, in another."""
        return f"adapter {self.adapter} {name_space}" if self.adapter else name_space

    def waited(self, wait_s: float) -> Self:
        """Return them for a reader who waited so much longer, where anything depends on that."""
        if self.slo is None and not self.deadline_s:
            return self
        return msgspec.structs.replace(self, waited_s=self.waited_s + wait_s)
