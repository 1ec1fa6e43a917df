"""All options of a server: what extends a text, each where its request asks for it, what refuses
requests, and the policy."""

from collections.abc import Sequence as Ordered
from dataclasses import replace
from functools import partial
from math import inf

from draftwerk.cache.kinds.recurrent_states import SequenceStates
from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.load.size_limits import RequestSizes, RoundLimits
from draftwerk.speculative.options.beams.beam_group import BeamGroup
from draftwerk.speculative.options.beams.beam_refusals import check_beam
from draftwerk.speculative.options.beams.decisions import BeamRules
from draftwerk.speculative.options.beams.sampled import new_beams
from draftwerk.speculative.options.beams.search import SEARCH_ROOM, BeamSearch
from draftwerk.speculative.options.blend.blend_refusals import check_segments
from draftwerk.speculative.options.blend.blended_prompt import BlendedPrompt
from draftwerk.speculative.options.blend.blending import Blending, blended
from draftwerk.speculative.options.blend.rules import canonical_parts
from draftwerk.speculative.options.extended_sequence import extended
from draftwerk.speculative.options.forced_text import ChainRoom, ForcedText
from draftwerk.speculative.options.pooled_prompt import PooledPrompt, check_read
from draftwerk.speculative.options.request_checks import check_ids, check_text
from draftwerk.speculative.options.scored_prompt import ScoredPrompt
from draftwerk.speculative.options.service.lengths import TextLengths
from draftwerk.speculative.options.service.service_policy import ServicePolicy
from draftwerk.speculative.request import EncodedRequest
from draftwerk.speculative.requests.slo import Deadlines
from draftwerk.speculative.row_parts.sequence_options import SequenceOptions
from draftwerk.speculative.running_set import Extension, SequenceFactory
from draftwerk.speculative.scheduler import OptionSet, PolicyFactory
from draftwerk.speculative.sequence import Sequence


def all_options(expects_lengths: bool = True, more: Ordered[Extension] = ()) -> OptionSet:
    """Return every option, and `more` extensions; with `expects_lengths` a sequence enters only if
    all that run will probably fit to their ends."""

    def policy() -> PolicyFactory:
        return partial(ServicePolicy, lengths=TextLengths() if expects_lengths else None)

    def all_extensions(cost: StepCost, limits: RoundLimits) -> tuple[Extension, ...]:
        return *extensions(cost, limits), *more

    return OptionSet(extensions=all_extensions, check=check_servable, policy=policy)


def extensions(cost: StepCost, limits: RoundLimits) -> tuple[Extension, ...]:
    """Return all options; a later one extends what earlier ones have made of a text."""
    forced = partial(forced_text, ChainRoom(cost, limits.pause_s))
    reading = forced, scored_prompt, pooled_prompt
    return promised, recovered, adapted, *reading, beam_group, blended_prompt


def check_servable(request: EncodedRequest, sizes: RequestSizes) -> None:
    """Raise RefusedError for what an option cannot do, or what does not fit."""
    if request.options.pooling is not None:
        check_read(request, sizes)
        return
    check_text(request, sizes)
    check_ids(request.options.forced_tokens, sizes.vocab_size, "given")
    check_beam(request, sizes)
    check_segments(request, sizes)


def promised(factory: SequenceFactory, request: EncodedRequest, text: Sequence) -> Sequence:
    """Every text has the server's promise, unless its request has one."""
    options, times = request.options, text.times
    text.times = Deadlines(
        arrived_s=times.arrived_s,
        stages=times.stages,
        slo=factory.limits.slo if options.slo is None else options.slo,
        expires_s=times.arrived_s + (options.deadline_s or inf),
        had_tokens=any(request.committed) or bool(request.ended),
    )
    return text


def recovered(factory: SequenceFactory, request: EncodedRequest, text: Sequence) -> Sequence:
    """A text that was submitted before, to actors that failed, was counted there."""
    text.tally.counted = bool(request.committed)
    return text


def adapted(factory: SequenceFactory, request: EncodedRequest, text: Sequence) -> Sequence:
    if adapter := request.options.adapter:
        text.request = replace(text.request, options=SequenceOptions(adapter=adapter))
    return text


def forced_text(
    room: ChainRoom, factory: SequenceFactory, request: EncodedRequest, text: Sequence
) -> Sequence:
    """All forced texts share the room of a round."""
    if not (forced_tokens := request.options.forced_tokens):
        return text
    methods = request.options.speculation.methods
    text.request = replace(text.request, draft_max=len(forced_tokens), methods=methods)
    return extended(text, ForcedText, forced_tokens=forced_tokens, chain_room=room)


def scored_prompt(factory: SequenceFactory, request: EncodedRequest, text: Sequence) -> Sequence:
    """The first of several choices scores the prompt."""
    options = request.options
    if options.prompt_logprobs < 0 or text.leader is not None:
        return text
    own = {"scored": options.scored_from, "alternatives": options.prompt_logprobs}
    return extended(text, ScoredPrompt, **own)


def pooled_prompt(factory: SequenceFactory, request: EncodedRequest, text: Sequence) -> Sequence:
    if (pooling := request.options.pooling) is None:
        return text
    text.request = replace(text.request, tokens_max=0, draft_max=0, methods=())
    own = {"scored": request.options.scored_from, "pooling": pooling}
    return extended(text, PooledPrompt, **own)


def beam_group(factory: SequenceFactory, request: EncodedRequest, text: Sequence) -> Sequence:
    """What was sent before a crash the search finds again; it sends only what was not."""
    options = request.options
    if options.beam_width <= 1:
        return text
    del text.tokens[len(request.tokens) :]
    drafts = request.options.speculation.limit(SEARCH_ROOM * factory.limits.draft_max)
    text.request = replace(text.request, draft_max=drafts)
    text.memory = factory.memory(request, slots_min=2 * options.beam_width)
    sampling = text.request.sampling
    rules = BeamRules(
        width=options.beam_width,
        tokens_max=text.request.tokens_max,
        stop_token_ids=sampling.stop_token_ids,
        length_penalty=options.length_penalty,
        early_stopping=options.early_stopping,
        seed=sampling.seed if sampling.temperature > 0.0 else None,
        prompt_count=text.request.prompt_count,
    )
    sent = len(request.committed[0]) if request.committed else 0
    search = BeamSearch(
        new_beams(rules), factory.new_id, options.choices, sent, options.shows_hypotheses
    )
    return extended(text, BeamGroup, search=search)


def blended_prompt(factory: SequenceFactory, request: EncodedRequest, text: Sequence) -> Sequence:
    blend, size = request.options.blend, factory.pools.blocks.block_size
    parts = () if blend is None else canonical_parts(blend, len(request.tokens), size)
    if blend is None or not parts:
        return text
    states = text.memory.part(SequenceStates)
    text.memory = factory.memory(
        request, blended(blend, request.tokens, parts), 0 if states is None else states.count
    )
    part_memory = partial(factory.pools.memory, factory.namer, request.options.name_space)
    return extended(text, BlendedPrompt, blending=Blending(blend, parts, part_memory))
