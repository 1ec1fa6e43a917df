"""Requests for beam searches that cannot be served."""

from draftwerk.speculative.load.size_limits import MemorySizes, RefusedError, RequestSizes
from draftwerk.speculative.options.request_checks import room
from draftwerk.speculative.parameters.bounds import WIDTH_MAX
from draftwerk.speculative.request import EncodedRequest
from draftwerk.speculative.sampling import Sampling


def check_beam(request: EncodedRequest, sizes: RequestSizes) -> None:
    """Raise RefusedError for a search that cannot be served."""
    options, memory = request.options, sizes.memory
    width, sampling = options.beam_width, options.sampling
    if width == 1:
        return
    width_max = min(widest(memory.states), memory.round_max)
    if not 1 < width <= width_max:
        raise RefusedError(f"a beam may be {width_max} wide at most", "beam_width")
    if sampling.temperature > 0.0 and options.length_penalty != 1.0:
        raise RefusedError("texts that are drawn do not compete by length", "length_penalty")
    if sampling.temperature > 0.0 and options.early_stopping:
        raise RefusedError("texts that are drawn must all be drawn", "early_stopping")
    if sampling.logprob_token_ids:
        raise RefusedError("a beam search reports no tokens by name", "logprob_token_ids")
    if sampling.logprobs >= 0 and _changes_distribution(sampling):
        reason = "a beam search reports raw log-probabilities of an unchanged distribution alone"
        raise RefusedError(reason, "logprobs")
    _check_room(width, len(request.tokens), room(request, sizes), memory)


def widest(state_count: int) -> int:
    """Return how wide a beam may be: each member reads a recurrent state and writes one, and the
    first may go on from a snapshot."""
    return min(WIDTH_MAX, (state_count - 1) // 2) if state_count else WIDTH_MAX


def _changes_distribution(sampling: Sampling) -> bool:
    return sampling.edits_logits or sampling.grammar is not None or sampling.temperature > 0.0


def _check_room(width: int, prompt_count: int, tokens_max: int, sizes: MemorySizes) -> None:
    """Raise RefusedError for a search that a whole pool could not hold at its widest.

    `tokens_max` is what a hypothesis may grow to.
    """
    count, size = sizes.blocks
    shared = (prompt_count - 1) // size
    tail = -(-(prompt_count + tokens_max) // size) - shared
    window_count, held = sizes.windows
    if held + width * min(tail, held) > window_count > 0:
        fits = max(0, window_count // held - 1)
        raise RefusedError(
            f"the windows of {width} texts do not fit; those of {fits} would", "beam_width"
        )
    if shared + width * tail <= count:
        return
    fits = (count - shared) // width + shared
    left = max(0, fits * size - prompt_count)
    raise RefusedError(
        f"{width} texts of {tokens_max} tokens do not fit; {left} would", "beam_width"
    )
