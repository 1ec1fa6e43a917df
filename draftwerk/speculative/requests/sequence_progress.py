"""What a sequence has come to, as its listeners are told."""

import msgspec

from draftwerk.speculative.protocol.rounds import ChosenLogprob, Decision, Draft
from draftwerk.speculative.requests.reading import ReadPrompt
from draftwerk.speculative.requests.sequence import Sequence
from draftwerk.speculative.requests.tally import ScoredTokens


class SequenceProgress(msgspec.Struct, frozen=True):
    """What a verdict meant for one sequence."""

    sequence: Sequence
    tokens: tuple[int, ...]
    origins: tuple[str, ...]
    logprobs: tuple[ChosenLogprob, ...]
    finish_reason: str = ""
    error: str = ""
    hypothesis: tuple[int, ...] = ()
    """All tokens of the best text of a search so far, if the client asked for it."""
    scores: tuple[float, ...] = ()
    """Per token, the score of a search's text that ends with it."""
    scored: ScoredTokens | None = None
    """Prompt tokens whose log-probabilities have become known."""
    margin: float | None = None
    """By how much the last token beats the one that was given in its place, in nats."""
    read_prompt: ReadPrompt | None = None
    """What a prompt came to that was only to be read."""


def origins(decision: Decision, draft: Draft) -> tuple[str, ...]:
    """Name where each decided token came from: a source, or the target itself.

    The target's own token is "corrected" where a draft stood in its place, "bonus" behind a fully
    accepted draft, and "target" where nothing was drafted.
    """
    if not decision.tokens:
        return ()
    if not draft.tokens:
        return ("target",)
    last = decision.path[-1] if decision.path else -1
    own = "corrected" if last in draft.parents else "bonus"
    return (*(draft.sources[node] for node in decision.path), own)
