"""`/infill`: completion in the middle as llama.cpp's server has it, for editors made for that."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request

from draftwerk.actors.events.client_events import Delta, Ended
from draftwerk.api.openai.schema import SamplingBody
from draftwerk.api.openai.translate import options
from draftwerk.api.requests.decode import body_of
from draftwerk.api.requests.field_rows import knows, no_effect
from draftwerk.api.requests.field_types import BodyText, Label, TokenBound
from draftwerk.api.requests.grammars import grammar_of, text_form
from draftwerk.api.requests.model_choice import loaded_state, served_as
from draftwerk.api.requests.prompts.fim_prompt import Fim, fim_prompt
from draftwerk.api.requests.reply_plan import ReplyPlan
from draftwerk.api.responses.serializer import GatheredChoice, ReplyMetadata, Serializer
from draftwerk.api.responses.sse import GenerationResponse
from draftwerk.api.shared.errors import ApiError
from draftwerk.api.shared.handling import EVENTS, Endpoint, RequestContext, call_of
from draftwerk.api.shared.usage import RequestMetrics, Usage

FILES_MAX = 256
SamplerName = Annotated[str, Meta(max_length=64)]
Milliseconds = Annotated[int, Meta(ge=-1, le=2**31)]


class ExtraFile(Struct, frozen=True):
    """Another file, or a part of one, that the model is to know of."""

    text: BodyText
    filename: Label = "tmp"


@knows(
    no_effect("cache_prompt", why="prefixes are found without it"),
    no_effect("samplers", why="each sampler's own fields say what is applied"),
    no_effect("n_indent", why="lines are not cut by their indentation"),
    no_effect("t_max_prompt_ms", why="a prompt is read to its end; `deadline` bounds the wait"),
    no_effect("t_max_predict_ms", why="`n_predict` bounds the text"),
)
class InfillBody(SamplingBody, frozen=True, kw_only=True):
    """`POST /infill`."""

    input_prefix: BodyText
    input_suffix: BodyText
    input_extra: Annotated[list[ExtraFile], Meta(max_length=FILES_MAX)] | None = None
    prompt: BodyText | None = None
    """How the text between the two begins."""
    n_predict: TokenBound | None = None
    """-1 is no bound but the context's; with 0 the prompt is only read, so that it is cached."""
    cache_prompt: bool | None = None
    samplers: Annotated[list[SamplerName], Meta(max_length=32)] | SamplerName | None = None
    n_indent: Annotated[int, Meta(ge=0, le=1024)] | None = None
    t_max_prompt_ms: Milliseconds | None = None
    t_max_predict_ms: Milliseconds | None = None

    @property
    def fills_gap(self) -> bool:
        return True


class InfillTimings(Struct, frozen=True):
    """Times of one reply; tokens, milliseconds, tokens a second."""

    prompt_n: int
    """Tokens of the prompt that were not in the cache."""
    prompt_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_second: float
    draft_n: int
    draft_n_accepted: int


class InfillChunk(Struct, frozen=True, kw_only=True):
    """New text of a streamed reply."""

    index: int = 0
    content: str
    tokens: tuple[int, ...] = ()
    stop: bool = False


class InfillReply(Struct, frozen=True, kw_only=True):
    """The reply, or the last chunk of a streamed one, which has no text of its own."""

    index: int = 0
    content: str
    tokens: tuple[int, ...] = ()
    stop: bool = True
    model: str
    stop_type: Literal["eos", "limit", "word"]
    stopping_word: str = ""
    has_new_line: bool
    tokens_predicted: int
    tokens_evaluated: int
    """Tokens of the prompt."""
    tokens_cached: int
    truncated: bool = False
    timings: InfillTimings
    generation_settings: dict[str, int | float] = {}
    system_fingerprint: str = ""
    """Ours."""


class InfillFault(Struct, frozen=True):
    """The last chunk of a reply that could not be finished."""

    error: dict[str, str | int]


@dataclass(slots=True)
class InfillSerializer(Serializer):
    """The chunks of one reply."""

    metadata: ReplyMetadata
    seed: int
    text: str = ""
    finish_reason: str = ""
    stopped_by: str = ""

    def chunks(self, event: Delta | Ended, usage: Usage | None) -> list[msgspec.Struct]:
        """Return the chunk of an event that has text."""
        self.text += event.text
        tokens = event.tokens if isinstance(event, Delta) else ()
        if isinstance(event, Ended):
            self.finish_reason, self.stopped_by = event.finish_reason, event.stopped_by
        return [InfillChunk(content=event.text, tokens=tokens)] if event.text else []

    def last_chunks(self, usage: Usage, metrics: RequestMetrics) -> list[msgspec.Struct]:
        """Return the chunk that tells how the text ended."""
        whole = self._reply((), usage, metrics)
        return [msgspec.structs.replace(whole, content="")]

    def failure(self, error: ApiError) -> list[msgspec.Struct]:
        """Return the error as the last chunk."""
        return [InfillFault({"code": error.status, "message": error.message})]

    def reply(
        self, choices: Sequence[GatheredChoice], usage: Usage, metrics: RequestMetrics
    ) -> msgspec.Struct:
        """Return the whole reply."""
        [choice] = choices
        self.text, self.finish_reason = choice.text, choice.finish_reason
        self.stopped_by = choice.stopped_by
        return self._reply(tuple(choice.tokens), usage, metrics)

    def _reply(self, tokens: tuple[int, ...], usage: Usage, metrics: RequestMetrics) -> InfillReply:
        ended = "word" if self.stopped_by else "eos" if self.finish_reason == "stop" else "limit"
        return InfillReply(
            content=self.text,
            tokens=tokens,
            model=self.metadata.model,
            stop_type=ended,
            stopping_word=self.stopped_by,
            has_new_line="\n" in self.text,
            tokens_predicted=usage.completion_tokens,
            tokens_evaluated=usage.prompt_tokens,
            tokens_cached=usage.prompt_tokens + usage.completion_tokens,
            timings=timings(usage, metrics),
            generation_settings={"seed": self.seed},
            system_fingerprint=self.metadata.fingerprint,
        )


def timings(usage: Usage, metrics: RequestMetrics) -> InfillTimings:
    """Return a reply's times in llama.cpp's words."""
    details, drafts = usage.prompt_tokens_details, metrics.speculative_decoding
    cached = 0 if details is msgspec.UNSET else details.cached_tokens
    read, written = usage.prompt_tokens - cached, usage.completion_tokens
    prompt_ms = (metrics.time_to_first_token_ms or 0.0) - metrics.queue_time_ms
    written_ms = metrics.generation_time_ms or 0.0
    return InfillTimings(
        prompt_n=read,
        prompt_ms=prompt_ms,
        prompt_per_second=_rate(read, prompt_ms),
        predicted_n=written,
        predicted_ms=written_ms,
        predicted_per_second=_rate(written, written_ms),
        draft_n=0 if drafts is None else drafts.num_draft_tokens,
        draft_n_accepted=0 if drafts is None else drafts.num_accepted_draft_tokens,
    )


def _rate(count: int, taken_ms: float) -> float:
    return round(1e3 * count / taken_ms, 3) if taken_ms > 0 else 0.0


INFILL = msgspec.json.Decoder(InfillBody)


async def infill(request: Request) -> GenerationResponse:
    """`POST /infill`."""
    body = await body_of(request, INFILL)
    state = await loaded_state(request, body.model)
    extra = body.input_extra or ()
    fim = Fim(
        before=body.input_prefix,
        after=body.input_suffix,
        begun=body.prompt or "",
        files=tuple((each.filename, each.text) for each in extra),
    )
    prompt = await fim_prompt(state, fim, "input_suffix")
    text = text_form(body, grammar_of(None), "response_format")
    model = served_as(state.model, body.model, body.lora)
    context = RequestContext(model, state.new_seed)
    tokens_max = None if body.n_predict == -1 else body.n_predict
    found = options(body, context, ReplyPlan(text.grammar, blamed=text.field), tokens_max)
    names = {"max_tokens": "n_predict", "prompt": "input_prefix"}
    call = call_of(request, "infill", [prompt], found, names)
    metadata = ReplyMetadata(
        id=call.request_id,
        created=int(state.now()),
        model=model.name,
        fingerprint=model.fingerprint,
    )
    serializer = InfillSerializer(metadata, found.sampling.seed)
    return GenerationResponse(state, call, serializer, bool(body.stream), end=b"")


ENDPOINTS = (
    Endpoint(
        "POST",
        "/infill",
        infill,
        "Complete a text in the middle",
        InfillBody,
        InfillReply,
        stream_type=EVENTS,
    ),
)
