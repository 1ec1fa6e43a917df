"""Checked bodies to what the engine is asked: prompts and Options."""

from collections.abc import Callable, Sequence
from typing import TypedDict, cast

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from draftwerk.actors.messages import Chat, ChatMessage, Options, Prompt, Scalar, Speculation
from draftwerk.api.core.errors import ApiError, refused
from draftwerk.api.core.ports import ServedModel
from draftwerk.api.openai.schema import (
    ChatBody,
    CompletionBody,
    Content,
    Message,
    MessageContent,
    OpenAIBody,
    Prediction,
    SamplingBody,
    SpeculationBody,
)
from draftwerk.api.replying.decode import refused_fields
from draftwerk.api.replying.field_types import PROMPTS_MAX, ServiceTier
from draftwerk.api.replying.grammars import check_conflicts, grammar_of, text_grammar
from draftwerk.api.replying.promise_fields import promise_of, seconds
from draftwerk.api.replying.reasoning_request import ReasoningRequest, reasoning_of
from draftwerk.api.replying.reply_plan import ReplyPlan, plan_reply
from draftwerk.api.replying.segments import blend_of, marked
from draftwerk.api.replying.tool_request import chat_wish, tool_call
from draftwerk.speculative.blend.rules import Blend
from draftwerk.speculative.replies.formats import ReplyFormat
from draftwerk.speculative.sampling.defaults import SamplingDefaults
from draftwerk.speculative.sampling.params import Grammar, Sampling

COMPLETION_TOKENS = 16
"""Tokens of a completion that names no limit, as OpenAI documents it."""
INCLUDES = ("token_origins",)
TIERS: dict[ServiceTier, int] = {
    "auto": 0, "default": 0, "scale": 0, "flex": 100, "priority": -100, "fast": -100,
}  # fmt: skip
"""The `priority` of each service tier."""
SERVED_AS: dict[ServiceTier, ServiceTier] = {
    "auto": "default", "scale": "default", "fast": "priority",
}  # fmt: skip
"""What a reply calls a tier that is one of the others."""
NO_DEFAULTS = SamplingDefaults()
"""Of a protocol that leaves the distribution as it is."""
WHOLE_WINDOWS = (-1, 64)
"""Values of `repeat_last_n` that are taken for all of the text: that, and what clients send without
having been asked."""
TEMPERATURE_MIN = 1e-6
"""Below this, one unit in the last place of a float32 logit outweighs any noise: it is greedy."""


def chat_prompt(
    messages: Sequence[Message],
    tools: tuple[str, ...] = (),
    variables: tuple[tuple[str, Scalar], ...] = (),
) -> Chat:
    """Return the conversation as plain text messages; `tools` are JSON."""
    turns = tuple(_chat_message(each, index) for index, each in enumerate(messages))
    check_turns(turns, "messages")
    return Chat(turns, tools, variables)


def check_turns(turns: Sequence[ChatMessage], path: str) -> None:
    """Refuse a tool's result that answers no call before it."""
    called: set[str] = set()
    for index, turn in enumerate(turns):
        called.update(each.id for each in turn.calls)
        if turn.role == "tool" and turn.call_id not in called:
            said = f"`{path}[{index}]` is the result of a call that is not before it."
            raise refused(said, f"{path}[{index}]", "invalid")


def _chat_message(message: Message, index: int) -> ChatMessage:
    path = f"messages[{index}]"
    check_message(message, path)
    if message.content is None and message.role != "assistant":
        raise refused(f"`{path}.content` is required.", f"{path}.content", "missing")
    role = "system" if message.role == "developer" else message.role
    if role != "assistant" and (message.tool_calls or message.reasoning_content):
        raise refused(f"`{path}.tool_calls` is an assistant's.", f"{path}.tool_calls", "invalid")
    if (role == "tool") != (message.tool_call_id is not None):
        field = f"{path}.tool_call_id"
        raise refused(f"`{field}` goes with the role tool.", field, "invalid")
    return ChatMessage(
        role,
        plain(message.content),
        message.name or "",
        calls=tuple(
            tool_call(each.id, each.function, f"{path}.tool_calls[{at}].function")
            for at, each in enumerate(message.tool_calls or ())
        ),
        call_id=message.tool_call_id or "",
        segments=marked(message.content),
        reasoning=message.reasoning_content or "",
    )


def check_message(message: Struct, path: str) -> None:
    """Refuse what a message has and no model would see."""
    for name in refused_fields(message):
        said = "are not supported by this model" if name == "images" else "is not supported"
        raise refused(f"`{path}.{name}` {said}.", f"{path}.{name}", "unsupported")


def plain(content: Content | MessageContent | None) -> str:
    """Return the text of a content, its parts joined."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text for part in content)


def completion_prompts(body: CompletionBody) -> list[Prompt]:
    """Return the prompts of a completion: one, or a list of texts or of token ids."""
    given = body.prompt
    if isinstance(given, str):
        return [given]
    kinds = set(map(type, given))
    if kinds == {int}:
        return [cast("tuple[int, ...]", tuple(given))]
    if int in kinds:
        raise refused("`prompt` mixes token ids with texts or lists.", "prompt", "invalid")
    if not given or () in given:
        raise refused("`prompt` is empty.", "prompt", "invalid")
    if body.deadline is not None and len(given) > 1:
        raise refused("`deadline` cannot go with several prompts.", "deadline", "unsupported")
    if len(given) > PROMPTS_MAX:
        raise refused(f"`prompt` has more than {PROMPTS_MAX} prompts.", "prompt", "invalid")
    return cast("list[Prompt]", given)


def chat_plan(body: ChatBody, model: ServedModel) -> ReplyPlan:
    """Return what the reply of a chat request must be."""
    wish = chat_wish(body.tools, body.tool_choice, body.parallel_tool_calls)
    reasoning = ReasoningRequest(
        body.reasoning_effort,
        enabled=body.enable_thinking if model.reasoning is not None else None,
        budget=body.thinking_budget,
        variables=reasoning_of(body.chat_template_kwargs).variables,
    )
    text, field = text_grammar(body, grammar_of(body.response_format), "response_format")
    return plan_reply(wish, reasoning, text, field, model)


def chat_options(
    body: ChatBody,
    model: ServedModel,
    tenant: str,
    new_seed: Callable[[], int],
    plan: ReplyPlan | None = None,
) -> Options:
    """Return the options of a chat request."""
    plan = plan or chat_plan(body, model)
    if body.top_logprobs is not None and not body.logprobs:
        raise refused("`top_logprobs` needs `logprobs` to be true.", "top_logprobs", "invalid")
    _check_stream_options(body)
    return options(
        body,
        model,
        tenant,
        new_seed,
        tokens_max=_tokens_max(body, ("max_tokens", "max_completion_tokens", "n_predict"), None),
        choices=body.n or 1,
        logprobs=(body.top_logprobs or 0) if body.logprobs else -1,
        grammar=plan.grammar,
        grammar_field=plan.blamed,
        reply=plan.form,
        blend=blend_of(body.blend, body.documents, [each.content for each in body.messages], model),
    )


def completion_options(
    body: CompletionBody, model: ServedModel, tenant: str, new_seed: Callable[[], int]
) -> Options:
    """Return the options of a completion; `best_of` choices are generated where asked."""
    choices, kept = body.best_of or body.n or 1, body.n or 1
    if choices < kept:
        raise refused("`best_of` must be at least `n`.", "best_of", "invalid")
    if (body.beam_width or 1) > 1:
        if choices > (body.beam_width or 1):
            raise refused("`best_of` is above `beam_width`.", "best_of", "invalid")
        choices = kept  # a search ranks its texts itself
    if choices > kept and body.stream:
        raise refused("`best_of` above `n` cannot be streamed.", "best_of", "invalid")
    if body.echo and body.logprobs is not None:
        raise refused("`echo` with `logprobs` is not supported.", "logprobs", "unsupported")
    if body.echo and choices > kept:
        raise refused("`echo` with `best_of` is not supported.", "best_of", "unsupported")
    _check_stream_options(body)
    grammar, field = text_grammar(body, grammar_of(body.response_format), "response_format")
    wanted = -1 if body.logprobs is None else body.logprobs
    return options(
        body,
        model,
        tenant,
        new_seed,
        tokens_max=_tokens_max(body, ("max_tokens", "n_predict"), COMPLETION_TOKENS),
        choices=choices,
        logprobs=max(wanted, 0) if choices > kept else wanted,
        echo=bool(body.echo),
        blend=blend_of(body.blend, body.documents, (), model),
        grammar=grammar,
        grammar_field=field,
    )


def _tokens_max(body: OpenAIBody, names: Sequence[str], default: int | None) -> int | None:
    """Return the bound that some fields give; refuses those that differ, and none at all."""
    given = {name: getattr(body, name) for name in names if getattr(body, name) is not None}
    if len(set(given.values())) > 1:
        first, second = list(given)[:2]
        raise refused(f"`{first}` and `{second}` differ.", second, "invalid")
    if body.n_predict == 0:
        said = "`n_predict` must be at least 1, or -1 for no bound."
        raise refused(said, "n_predict", "invalid")
    found = next(iter(given.values()), default)
    return None if found == -1 else found


def grammar_field(body: CompletionBody) -> str:
    """Return the field that says what the text of a completion must be."""
    return text_grammar(body, grammar_of(body.response_format), "response_format")[1]


def options(
    body: SamplingBody,
    model: ServedModel,
    tenant: str,
    new_seed: Callable[[], int],
    *,
    tokens_max: int | None,
    choices: int = 1,
    logprobs: int = -1,
    echo: bool = False,
    includes: tuple[str, ...] = INCLUDES,
    grammar: Grammar | None = None,
    grammar_field: str = "response_format",
    reply: ReplyFormat | None = None,
    blend: Blend | None = None,
    protocol: SamplingDefaults = NO_DEFAULTS,
    path: str = "",
) -> Options:
    """Return the options of any body; null and absent fields take the model's own values.

    Where it has none they take those of the `protocol`. `path` is where it has its sampling fields.
    """
    check_model(body.model, model)
    _check_include(body, includes)
    check_conflicts(body, grammar, grammar_field)
    if (body.min_tokens or 0) > (tokens_max or model.context_max):
        raise refused("`min_tokens` is above the token limit.", "min_tokens", "invalid")
    _check_beams(body)
    return Options(
        sampling=replace(
            drawn_as(body, model, protocol, path),
            logit_bias=_bias(body, model),
            tokens_min=body.min_tokens or 0,
            grammar=grammar,
            seed=(new_seed() if body.seed is None else body.seed) & (2**64 - 1),
            logprobs=logprobs,
        ),
        tokens_max=tokens_max,
        ignore_eos=bool(body.ignore_eos),
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
        stop_token_ids=_stop_tokens(body, model),
        choices=choices,
        beam_width=body.beam_width or 1,
        length_penalty=1.0 if body.length_penalty is None else body.length_penalty,
        early_stopping=bool(body.early_stopping),
        echo=echo,
        reply=reply,
        blend=blend,
        speculation=_speculation(body.speculation, body.prediction, model),
        tenant=tenant,
        cache_salt=body.cache_salt or "",
        priority=TIERS[body.service_tier or "auto"] if body.priority is None else body.priority,
        promise=promise_of(body.slo),
        deadline_s=seconds(body.deadline, "deadline"),
    )


class Penalties(TypedDict):
    """The penalties of a text, as `Sampling` has them."""

    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float


NO_PENALTIES = Penalties(repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0)


def _asked_repetition(body: SamplingBody) -> float | None:
    """Return the repetition penalty of a body, which has two names."""
    rates = {body.repetition_penalty, body.repeat_penalty} - {None}
    if len(rates) > 1:
        said = "`repetition_penalty` and `repeat_penalty` differ."
        raise refused(said, "repeat_penalty", "invalid")
    return rates.pop() if rates else None


def _penalties(body: SamplingBody, repetition: float, path: str) -> Penalties:
    """Return the penalties, which look at all of the text: a window is refused if it matters."""
    found = Penalties(
        repetition_penalty=repetition,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
    )
    if found == NO_PENALTIES or body.repeat_last_n == 0:
        return NO_PENALTIES
    if body.repeat_last_n not in (None, *WHOLE_WINDOWS):
        field = path + "repeat_last_n"
        said = f"`{field}` is not supported by this server: penalties look at all of the text."
        raise refused(said, field, "unsupported")
    return found


def tier_of(body: SamplingBody) -> ServiceTier | UnsetType:
    """Return the tier that a reply names: the one that served, for a request that named any."""
    if body.service_tier is None:
        return UNSET
    return SERVED_AS.get(body.service_tier, body.service_tier)


def drawn_as(
    body: SamplingBody,
    model: ServedModel,
    protocol: SamplingDefaults = NO_DEFAULTS,
    path: str = "",
) -> Sampling:
    """Return how the tokens of a body are drawn: as it says, else the model, else its protocol.

    A beam search has nothing of the model's: it does not sample unless asked to.
    """
    asked = SamplingDefaults(
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        min_p=body.min_p,
        repetition_penalty=_asked_repetition(body),
    )
    is_search = (body.beam_width or 1) > 1
    own = SamplingDefaults(temperature=0.0) if is_search else model.sampling
    found = replace(Sampling(), **asked.over(own.over(protocol)).given())
    temperature = found.temperature if found.temperature >= TEMPERATURE_MIN else 0.0
    penalties = _penalties(body, found.repetition_penalty, path)
    return replace(found, temperature=temperature, top_k=max(found.top_k, 0), **penalties)


def _check_beams(body: SamplingBody) -> None:
    """Refuse what only means something in a beam search; the engine refuses the rest by name."""
    if (body.beam_width or 1) > 1:
        return
    if body.early_stopping:
        raise refused("`early_stopping` needs `beam_width`.", "early_stopping", "invalid")
    if body.length_penalty not in (None, 1.0):
        raise refused("`length_penalty` needs `beam_width`.", "length_penalty", "invalid")


def check_model(name: str | None, model: ServedModel) -> None:
    """Refuse a model that is not the one served; no name means that one."""
    if name is not None and name not in model.names:
        sentence = (
            f"The model `{name[:80]}` is not served here, only `{model.name}` (see /v1/models); "
            "--served-model-name gives it other names."
        )
        raise ApiError(404, sentence, param="model", code="model_not_found")


def _check_include(body: SamplingBody, allowed: tuple[str, ...]) -> None:
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


def _bias(body: SamplingBody, model: ServedModel) -> tuple[tuple[int, float], ...]:
    bias = body.logit_bias or {}
    for token in bias:
        if model.vocab_size and token >= model.vocab_size:
            sentence = f"`logit_bias` names token {token}; there are {model.vocab_size}."
            raise refused(sentence, "logit_bias", "invalid")
    return tuple(sorted(bias.items()))


def _stop_tokens(body: SamplingBody, model: ServedModel) -> tuple[int, ...]:
    found = tuple(sorted(set(body.stop_token_ids or ())))
    if found and model.vocab_size and found[-1] >= model.vocab_size:
        said = f"`stop_token_ids` names token {found[-1]}; there are {model.vocab_size}."
        raise refused(said, "stop_token_ids", "invalid")
    if found and (body.beam_width or 1) > 1:
        said = "`stop_token_ids` cannot go with `beam_width`."
        raise refused(said, "stop_token_ids", "unsupported")
    return found


def _speculation(
    requested: SpeculationBody | None, prediction: Prediction | None, model: ServedModel
) -> Speculation:
    requested = requested or SpeculationBody()
    for name in requested.methods or ():
        if name not in model.draft_sources:
            known = ", ".join(model.draft_sources) or "none"
            sentence = f"`speculation.methods` names {name[:80]!r}; this server has {known}."
            raise refused(sentence, "speculation.methods", "unsupported")
    return Speculation(
        enabled=requested.enabled is not False,
        methods=None if requested.methods is None else tuple(requested.methods),
        draft_max=requested.draft_max,
        prediction=plain(prediction.content) if prediction else "",
    )
