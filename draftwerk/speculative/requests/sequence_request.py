"""What never changes of a sequence."""

from dataclasses import dataclass

from draftwerk.speculative.sampling.params import Sampling


@dataclass(slots=True, frozen=True, kw_only=True)
class SequenceRequest:
    """What is asked of a sequence; it never changes."""

    request_id: str
    choice: int = 0
    """Number of the choice within its request."""
    prompt_count: int
    """Tokens of the prompt."""
    written_count: int = 0
    """Tokens that a half-written reply has behind the prompt; they count as generated."""
    sampling: Sampling
    tokens_max: int
    """Generated tokens at most."""
    draft_max: int
    """Drafted tokens per round at most; 0 means no speculation."""
    priority: int = 0
    """Lower is sooner."""
    methods: tuple[str, ...] | None = None
    """Names of draft sources; None means all."""
    name_space: str = ""
    """Within what its blocks and its text may be found again."""
    prediction: tuple[int, ...] = ()
    """Tokens that the client expects."""
    adapter: str = ""
    """Digest of the adapter that it is computed with; empty for none."""
    had_tokens: bool = False
    """Whether its client was sent tokens of its request before a crash."""
    resumed: bool = False
    """Whether it was submitted before, to actors that failed."""
