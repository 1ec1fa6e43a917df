"""What a client is sent of a beam search: tokens that are settled, and the texts at its end."""

from dataclasses import replace

import msgspec

from draftwerk.speculative.load.tally import Tally
from draftwerk.speculative.options.beams.decisions import Hypothesis
from draftwerk.speculative.options.beams.search import BeamSearch
from draftwerk.speculative.options.extended_sequence import with_outputs
from draftwerk.speculative.requests.further_outputs import FurtherOutputs
from draftwerk.speculative.row_parts.chosen_logprob import ChosenLogprob
from draftwerk.speculative.sequence import Sequence, SequenceProgress


def new_progress(search: BeamSearch, root: Sequence) -> list[SequenceProgress]:
    """Return the newly final tokens; every choice's text at the end.

    Of several choices none is streamed: a stop string in one must not end the others.
    """
    if search.beams.done:
        return [_ending(search, root, choice) for choice in range(search.choices)]
    start, stop = search.sent, search.sent
    if search.choices == 1:
        stop = search.sent = max(start, len(search.beams.final_prefix()))
    if stop == start and not search.shows:
        return []
    best = search.beams.live[0]
    progress = _progress(search, root, best, start, stop)
    return [with_outputs(progress, hypothesis=best.tokens if search.shows else ())]


def _ending(search: BeamSearch, root: Sequence, choice: int) -> SequenceProgress:
    finished = search.beams.finished
    text = finished[choice] if choice < len(finished) else Hypothesis()
    tally = (
        root.tally
        if choice == 0
        else Tally(cached=root.tally.cached, further={**root.tally.further})
    )
    tally.further["score"] = text.score if text.tokens else None
    request = replace(root.request, choice=choice)
    carrier = root if choice == 0 else replace(root, request=request, tally=tally)
    start = min(search.sent, len(text.tokens)) if search.choices == 1 else 0
    stopped = not text.tokens or text.tokens[-1] in search.beams.rules.stop_token_ids
    progress = _progress(search, carrier, text, start, len(text.tokens))
    return msgspec.structs.replace(progress, finish_reason="stop" if stopped else "length")


def _progress(
    search: BeamSearch, root: Sequence, text: Hypothesis, start: int, stop: int
) -> SequenceProgress:
    tokens = text.tokens[start:stop]
    wanted = root.request.sampling.logprobs
    logprobs = (
        tuple(
            ChosenLogprob(dict(chosen_from)[token], chosen_from[:wanted])
            for token, chosen_from in zip(tokens, text.trail(start), strict=False)
        )
        if wanted >= 0
        else ()
    )
    scores = tuple(search.beams.scores(text, start)[: len(tokens)])
    origins = tuple(search.origins[start:stop])
    return SequenceProgress(root, tokens, origins, logprobs, further=FurtherOutputs(scores=scores))
