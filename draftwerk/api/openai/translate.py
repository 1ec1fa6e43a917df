"""Checked bodies to what the engine is asked: prompts and Options."""

from collections.abc import Collection, Sequence
from typing import TypeVar, cast

from msgspec.structs import replace

from draftwerk.api.openai.schema import (
    ChatBody,
    CompletionBody,
    EffortBody,
    OpenAIBody,
    SamplingBody,
)
from draftwerk.api.requests.deadlines import deadlines_of
from draftwerk.api.requests.decoding import sampling_of, speculation_of
from draftwerk.api.requests.field_types import PROMPTS_MAX
from draftwerk.api.requests.reasoning_request import ReasoningRequest
from draftwerk.api.requests.reply_plan import ReplyPlan
from draftwerk.api.requests.segments import blend_of
from draftwerk.api.shared.errors import refused
from draftwerk.api.shared.handling import RequestContext
from draftwerk.api.shared.ports import ServedModel
from draftwerk.api.shared.usage import ServiceTier
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import Prompt
from draftwerk.speculative.requests.declared_segments import Blend

BodyT = TypeVar("BodyT", bound=SamplingBody)

COMPLETION_TOKENS = 16
"""Tokens of a completion that names no limit, as OpenAI documents it."""
INCLUDES = ("token_origins",)
TIERS: dict[ServiceTier, int] = {
    "auto": 0, "default": 0, "scale": 0, "flex": 100, "priority": -100, "fast": -100,
}  # fmt: skip
"""The `priority` of each service tier."""


def completion_prompts(body: CompletionBody) -> list[Prompt]:
    """Return the prompts of a completion: one, or a list of texts or of token ids."""
    prompts = listed_prompts(body.prompt, "prompt")
    if () in prompts:
        raise refused("`prompt` is empty.", "prompt", "invalid")
    if body.deadline is not None and len(prompts) > 1:
        raise refused("`deadline` cannot go with several prompts.", "deadline", "unsupported")
    if len(prompts) > PROMPTS_MAX:
        raise refused(f"`prompt` has more than {PROMPTS_MAX} prompts.", "prompt", "invalid")
    return prompts


def listed_prompts(given: str | Sequence[str | int | Sequence[int]], field: str) -> list[Prompt]:
    """Return the texts or lists of token ids of a field; a bare list of ids is one of them.

    Raises ApiError for one of both, or of nothing.
    """
    if isinstance(given, str):
        return [given]
    kinds = set(map(type, given))
    if kinds == {int}:
        return [cast("tuple[int, ...]", tuple(given))]
    if int in kinds:
        raise refused(f"`{field}` mixes token ids with texts or lists.", field, "invalid")
    if not given:
        raise refused(f"`{field}` is empty.", field, "invalid")
    return cast("list[Prompt]", given)


def searched(body: BodyT) -> BodyT:
    """Return a body whose `beam_width` is what `use_beam_search` stands for."""
    if not body.use_beam_search:
        return body
    width = getattr(body, "best_of", None) or getattr(body, "n", None) or 1
    if body.beam_width not in (None, width):
        raise refused("`beam_width` and `use_beam_search` differ.", "use_beam_search", "invalid")
    return replace(body, beam_width=width)


def chat_options(
    body: ChatBody, context: RequestContext, plan: ReplyPlan, blend: Blend | None = None
) -> Options:
    """Return the options of a chat request."""
    if body.top_logprobs is not None and not body.logprobs:
        raise refused("`top_logprobs` needs `logprobs` to be true.", "top_logprobs", "invalid")
    _check_stream_options(body)
    check_include(body, INCLUDES)
    tokens_max = _tokens_max(body, ("max_tokens", "max_completion_tokens", "n_predict"), None)
    logprobs = (body.top_logprobs or 0) if body.logprobs else -1
    scored = _scored(body, body.prompt_logprobs)
    found = _naming_tokens(options(body, context, plan, tokens_max, logprobs, blend), body, context)
    return replace(found, choices=body.n or 1, prompt_logprobs=scored)


def chat_reasoning(body: ChatBody, model: ServedModel) -> ReasoningRequest:
    """Return what a chat says of reasoning, by any of its names."""
    wish, thinking = body.reasoning or EffortBody(), body.thinking
    enabled = wish.enabled if thinking is None else thinking.type != "disabled"
    budget = wish.max_tokens if thinking is None else thinking.budget_tokens
    if model.reasoning is None or enabled is False:
        budget = None  # it bounds what is not there
    return ReasoningRequest(
        body.reasoning_effort or wish.effort,
        enabled=enabled if body.enable_thinking is None else body.enable_thinking,
        budget=budget if body.thinking_budget is None else body.thinking_budget,
        variables=body.chat_template_kwargs,
    )


def completion_options(body: CompletionBody, context: RequestContext, plan: ReplyPlan) -> Options:
    """Return the options of a completion; `best_of` choices are generated where asked."""
    choices, kept = body.best_of or body.n or 1, body.n or 1
    if choices < kept:
        raise refused("`best_of` must be at least `n`.", "best_of", "invalid")
    if (body.beam_width or 1) > 1:
        if choices > (body.beam_width or 1):
            asked = "n" if body.best_of is None else "best_of"
            raise refused(f"`{asked}` is above `beam_width`.", asked, "invalid")
        choices = kept  # a search ranks its texts itself
    if choices > kept and body.stream:
        raise refused("`best_of` above `n` cannot be streamed.", "best_of", "invalid")
    if body.echo and choices > kept:
        raise refused("`echo` with `best_of` is not supported.", "best_of", "unsupported")
    if body.max_tokens == 0 and (body.beam_width or 1) > 1:
        raise refused("`max_tokens` 0 leaves nothing to search.", "max_tokens", "invalid")
    scored = body.prompt_logprobs
    if body.echo and body.logprobs is not None:
        scored = max(body.logprobs, scored or 0)
    _check_stream_options(body)
    check_include(body, INCLUDES)
    tokens_max = _tokens_max(body, ("max_tokens", "n_predict"), COMPLETION_TOKENS)
    logprobs = -1 if body.logprobs is None else body.logprobs
    logprobs = max(logprobs, 0) if choices > kept else logprobs
    blend = blend_of(body.blend, body.documents, (), context.model)
    scored = _scored(body, scored)
    found = _naming_tokens(options(body, context, plan, tokens_max, logprobs, blend), body, context)
    return replace(found, choices=choices, echo=bool(body.echo), prompt_logprobs=scored)


def _scored(body: OpenAIBody, alternatives: int | None) -> int:
    """Return how many alternatives are wanted of each prompt token; -1 for no log-probabilities."""
    if alternatives is None:
        return -1
    field = "echo" if body.prompt_logprobs is None else "prompt_logprobs"
    for other, is_given in (
        ("beam_width", (body.beam_width or 1) > 1),
        ("blend", body.blend is not None),
    ):
        if is_given:
            sentence = f"`{field}` cannot report a prompt's log-probabilities with `{other}`."
            raise refused(sentence, field, "unsupported")
    return alternatives


def _naming_tokens(
    found: Options, body: ChatBody | CompletionBody, context: RequestContext
) -> Options:
    """Return options in which tokens that the request names take the place of alternatives."""
    field = "logprob_token_ids"
    named = tuple(dict.fromkeys(body.logprob_token_ids or ()))
    if not named:
        return found
    if body.logprobs in (None, False):
        raise refused(f"`{field}` needs `logprobs`.", field, "invalid")
    if found.tokens_max == 0:
        raise refused(f"`{field}` is of generated tokens; `max_tokens` is 0.", field, "invalid")
    _check_tokens(named, field, context.model)
    return replace(found, sampling=replace(found.sampling, logprobs=0, logprob_token_ids=named))


def _tokens_max(body: OpenAIBody, names: Sequence[str], default: int | None) -> int | None:
    """Return the bound that some fields give; refuses those that differ, and none at all."""
    given = {name: getattr(body, name) for name in names if getattr(body, name) is not None}
    if len(set(given.values())) > 1:
        first, second = list(given)[:2]
        raise refused(f"`{first}` and `{second}` differ.", second, "invalid")
    for name, value in given.items():
        if value == 0 and not (name == "max_tokens" and isinstance(body, CompletionBody)):
            said = f"`{name}` must be at least 1, or -1 for no bound."
            raise refused(said, name, "invalid")
    found = next(iter(given.values()), default)
    return None if found == -1 else found


def options(
    body: SamplingBody,
    context: RequestContext,
    plan: ReplyPlan,
    tokens_max: int | None,
    logprobs: int = -1,
    blend: Blend | None = None,
) -> Options:
    """Return the options that all bodies share; null and absent fields take the model's values."""
    model = context.model
    _check_ending(body, plan, model.context_max if tokens_max is None else tokens_max)
    _check_beams(body)
    _check_tokens(body.allowed_token_ids or (), "allowed_token_ids", model)
    bias, stop_tokens = _bias(body, model), _stop_tokens(body, model)
    sampling = sampling_of(
        body,
        model,
        context.new_seed,
        is_search=(body.beam_width or 1) > 1,
        repeat_penalty=body.repeat_penalty,
        window=body.repeat_last_n,
    )
    predicted = body.prediction.text if body.prediction else ""
    speculation = speculation_of(body.speculation, model, predicted)
    deadlines = deadlines_of(body.slo, body.deadline)
    return Options(
        sampling=replace(
            sampling,
            logit_bias=tuple(sorted((bias | dict(sampling.logit_bias)).items())),
            tokens_min=body.min_tokens or 0,
            grammar=plan.grammar,
            logprobs=logprobs,
        ),
        tokens_max=tokens_max,
        ignore_eos=bool(body.ignore_eos),
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
        stop_token_ids=stop_tokens,
        beam_width=body.beam_width or 1,
        length_penalty=1.0 if body.length_penalty is None else body.length_penalty,
        early_stopping=bool(body.early_stopping),
        reply=plan.form,
        blend=blend,
        speculation=speculation,
        adapter=model.adapter,
        cache_salt=body.cache_salt or "",
        priority=TIERS[body.service_tier or "auto"] if body.priority is None else body.priority,
        slo=deadlines.slo,
        deadline_s=deadlines.deadline_s,
    )


def _check_ending(body: SamplingBody, plan: ReplyPlan, tokens_max: int) -> None:
    """Refuse what contradicts a grammar, which alone decides where its text ends, or the limit."""
    for field in ("ignore_eos", "stop_token_ids", "min_tokens"):
        if plan.grammar is not None and getattr(body, field):
            sentence = f"`{field}` cannot go with `{plan.blamed}`."
            raise refused(sentence, field, "unsupported")
    if (body.min_tokens or 0) > tokens_max:
        raise refused("`min_tokens` is above the token limit.", "min_tokens", "invalid")


def _check_beams(body: SamplingBody) -> None:
    """Refuse what only means something in a beam search; the engine refuses the rest by name."""
    if (body.beam_width or 1) > 1:
        return
    if body.early_stopping:
        raise refused("`early_stopping` needs `beam_width`.", "early_stopping", "invalid")
    if body.length_penalty not in (None, 1.0):
        raise refused("`length_penalty` needs `beam_width`.", "length_penalty", "invalid")


def check_include(body: SamplingBody, allowed: tuple[str, ...]) -> None:
    for each in body.include or ():
        if each not in allowed:
            words = " and ".join(map(repr, allowed))
            raise refused(f"`include` may hold {words} only.", "include", "unsupported")


def _check_stream_options(body: ChatBody | CompletionBody) -> None:
    if body.stream_options is not None and not body.stream:
        raise refused("`stream_options` needs `stream` to be true.", "stream_options", "invalid")
    if body.stream_options is not None and body.stream_options.include_obfuscation:
        field = "stream_options.include_obfuscation"
        raise refused(f"`{field}` is not supported.", field, "unsupported")


def _check_tokens(tokens: Collection[int], field: str, model: ServedModel) -> None:
    """Refuse a token that the vocabulary, where its size is known, does not have."""
    if tokens and model.vocab_size and max(tokens) >= model.vocab_size:
        sentence = f"`{field}` names token {max(tokens)}; there are {model.vocab_size}."
        raise refused(sentence, field, "invalid")


def _bias(body: SamplingBody, model: ServedModel) -> dict[int, float]:
    bias = body.logit_bias or {}
    _check_tokens(bias, "logit_bias", model)
    return dict(bias)


def _stop_tokens(body: SamplingBody, model: ServedModel) -> tuple[int, ...]:
    asked = set(body.stop_token_ids or ())
    found = tuple(sorted(asked))
    _check_tokens(found, "stop_token_ids", model)
    if found and (body.beam_width or 1) > 1:
        sentence = "`stop_token_ids` cannot go with `beam_width`."
        raise refused(sentence, "stop_token_ids", "unsupported")
    fills = body.fills_gap and (body.beam_width or 1) == 1
    if fills and model.fim is not None:
        return tuple(sorted(asked.union(model.fim.ends)))
    return found
