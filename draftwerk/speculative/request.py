"""A request: how it is to be decoded, and its prompt once that is in tokens."""

from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from draftwerk.speculative.parameters.bounds import (
    PREDICTION_MAX,
    STOPS_MAX,
    TOKEN_ID_MAX,
    LongName,
    StopString,
    TokenId,
    TokenIds,
    TokenTotal,
)
from draftwerk.speculative.replies.formats import ReplyFormat
from draftwerk.speculative.requests.option_fields import OptionFields
from draftwerk.speculative.requests.times import SequenceTimes, StageTimes
from draftwerk.speculative.row_parts.sequence_options import PLAIN_SEQUENCE, SequenceOptions
from draftwerk.speculative.sampling import Sampling


class Speculation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which drafts are made for a request; the text does not depend on them."""

    enabled: bool = True
    methods: Annotated[tuple[LongName, ...], Meta(max_length=16)] | None = None
    """Names of draft sources; None means every source the server runs."""
    draft_max: Annotated[int, Meta(ge=0, le=64)] | None = None
    """Drafted tokens per round at most."""
    prediction: Annotated[str, Meta(max_length=PREDICTION_MAX)] = ""
    """The text the client expects."""

    def limit(self, server_max: int) -> int:
        """Return how many tokens a round may draft for the request."""
        if not self.enabled:
            return 0
        return server_max if self.draft_max is None else min(server_max, self.draft_max)


class Written(msgspec.Struct, frozen=True, omit_defaults=True):
    """A half-written reply that a text goes on from."""

    tokens: TokenIds = ()
    """The tokens that it was generated or is encoded as: the generated ones come behind them."""
    text: str = ""
    """The text that its reader has; what is held back beyond it is sent, and no more."""
    reasoning: str = ""
    """The same of its reasoning, where that is told apart."""
    repeats_call: bool = False
    """Whether a call that it ends within is told from its beginning on, not its rest alone."""


CHOICES_MAX = 16
"""Texts for one prompt at most."""


class Options(OptionFields, frozen=True, kw_only=True, omit_defaults=True):
    """How one request is decoded, within the bounds of the types, to which `checked_options` holds
    it, as decoding does one from outside."""

    sampling: Sampling
    """Without branch and stop tokens: the engine fills those in."""
    tokens_max: TokenTotal | None = None
    """Generated tokens per choice; None: as the context holds, 0: the prompt is only read."""
    ignore_eos: bool = False
    stop: Annotated[tuple[StopString, ...], Meta(max_length=STOPS_MAX)] = ()
    """Strings that end a choice's text where they first occur; they are left out of it."""
    stop_token_ids: Annotated[tuple[TokenId, ...], Meta(max_length=64)] = ()
    """Tokens that end a choice's text besides the model's own, as those around a gap; they have no
    text."""
    choices: Annotated[int, Meta(ge=1, le=CHOICES_MAX)] = 1
    """Texts to generate for each prompt."""
    echo: bool = False
    """Whether the prompt's text comes first in each choice."""
    reply: ReplyFormat | None = None
    """How reasoning, text and calls are told apart; None for a reply that is text alone."""
    written: Written = Written()
    """The tokens that each text begins with, as if it had been generated; it is not sent again."""
    first_choice: Annotated[int, Meta(ge=0, lt=CHOICES_MAX)] = 0
    """The number under which the first choice's noise is drawn."""
    speculation: Speculation = Speculation()
    tenant: LongName = ""
    """The API key's name."""
    cache_salt: Annotated[str, Meta(max_length=2048)] = ""
    """Replaces the tenant in `name_space`, so that callers may share one or split their own."""
    priority: Annotated[int, Meta(ge=-1000, le=TOKEN_ID_MAX + 1)] = 0
    """Lower is sooner."""

    @property
    def name_space(self) -> str:
        """Within what cached blocks and finished outputs are shared; salts never meet tenants, nor
        one adapter another."""
        # Named by its kind: a salt with a tenant's name must not find what that tenant has cached.
        space = f"salt {self.cache_salt}" if self.cache_salt else f"tenant {self.tenant}"
        return self.own_space(space)


class OneRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what concerns one request."""

    request_id: str
    """The engine's name of a request; unique among live ones."""


class EngineRequest(OneRequest, frozen=True, kw_only=True):
    """A request to an engine, whatever its prompt."""

    options: Options
    arrived_s: float | None = None
    """On the engine's clock, when it came first; None means now."""
    committed: tuple[tuple[int, ...], ...] = ()
    """Per choice, tokens already delivered, before a crash or by another engine."""
    ended: tuple[int, ...] = ()
    """Choices that have ended, before a crash or in another engine."""


class EncodedRequest(EngineRequest, frozen=True, kw_only=True):
    """A request whose prompt is in tokens, and fits."""

    tokens: tuple[int, ...]
    """The prompt's token ids."""
    prediction: tuple[int, ...] = ()
    """Token ids of the text that the client expects."""
    times: StageTimes | None = None
    """The times of a first submission: when tokenizing began and ended."""

    def sequence_times(self, now_s: float) -> SequenceTimes:
        """Return the times of a sequence that begins now."""
        # They run from when the reader began to wait, elsewhere perhaps.
        came_s = now_s if self.arrived_s is None else self.arrived_s
        return SequenceTimes(came_s - self.options.waited_s, self.times)

    def sampling(self, choice: int, ends: tuple[int, ...]) -> Sampling:
        """Return the sampling of a choice whose text these tokens end, beside those it names."""
        stop_token_ids = *ends, *self.options.stop_token_ids
        # Choices differ by their noise alone, which is the same again after a crash.
        branch = self.options.first_choice + choice
        return replace(self.options.sampling, branch=branch, stop_token_ids=stop_token_ids)

    def sent_tokens(self, choice: int) -> tuple[int, ...]:
        """Return the tokens of a choice that were delivered before it was submitted here."""
        return self.committed[choice] if self.committed else ()

    @property
    def texts(self) -> list[int]:
        """The choices that have a sequence: those that have not ended, or the first for all."""
        if self.options.is_one_sequence:
            return [0]
        return [choice for choice in range(self.options.choices) if choice not in self.ended]


@dataclass(slots=True, frozen=True, kw_only=True)
class SequenceRequest:
    """What is asked of a sequence, by the names that its `Options` have; it never changes."""

    request_id: str
    choice: int = 0
    prompt_count: int
    written_count: int = 0
    """Tokens that a half-written reply has behind the prompt; they count as generated."""
    sampling: Sampling
    tokens_max: int
    """Generated tokens at most."""
    draft_max: int
    """Drafted tokens per round at most; 0 means no speculation."""
    priority: int = 0
    methods: tuple[str, ...] | None = None
    name_space: str = ""
    prediction: tuple[int, ...] = ()
    options: SequenceOptions = PLAIN_SEQUENCE
