"""Serializer of `/v1/responses`: engine events to the events of a response."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from draftwerk.actors.messages import Chat, ChatMessage, Delta, Ended, Options, TokenText
from draftwerk.api.core.errors import ApiError, refused
from draftwerk.api.core.ports import ServedModel
from draftwerk.api.openai.grammars import flat_grammar_of
from draftwerk.api.openai.replies import RequestMetrics, Usage
from draftwerk.api.openai.responses_events import (
    Completed,
    Created,
    HypothesisEvent,
    Incomplete,
    InProgress,
    ItemAdded,
    ItemDone,
    PartAdded,
    PartDone,
    ResponseEvent,
    ResponseFailed,
    TextDelta,
    TextDone,
)
from draftwerk.api.openai.responses_schema import (
    IncompleteDetails,
    InputDetails,
    OutputDetails,
    OutputMessage,
    OutputText,
    ResponseFault,
    ResponseObject,
    ResponsesBody,
    ResponseUsage,
    TextConfig,
    TextRequest,
)
from draftwerk.api.openai.schema import FlatFormat
from draftwerk.api.openai.serializer import GatheredChoice, ReplyMetadata, token_logprobs
from draftwerk.api.openai.translate import (
    check_message,
    check_reasoning,
    neutral_temperature,
    options,
    plain,
    tier_of,
)

LOGPROBS = "message.output_text.logprobs"
ORIGINS = "token_origins"
HYPOTHESES = "beam_hypotheses"
REASONING = "reasoning.encrypted_content"
"""Stock clients send it by default; a model that does not reason first has none."""
RESPONSES_NAMES = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "response_format": "text.format",
}
"""What Responses calls the fields that the engine may blame."""

EventKind = TypeVar("EventKind", bound=ResponseEvent)


def conversation_of(
    body: ResponsesBody, earlier: Sequence[ChatMessage] = ()
) -> tuple[ChatMessage, ...]:
    """Return what went before and the new input, instructions aside."""
    if isinstance(body.input, str):
        return (*earlier, ChatMessage("user", body.input))
    for index, each in enumerate(body.input):
        check_message(each, f"input[{index}]")
    roles = {"developer": "system"}
    new = [ChatMessage(roles.get(each.role, each.role), plain(each.content)) for each in body.input]
    return (*earlier, *new)


def responses_prompt(body: ResponsesBody, conversation: Sequence[ChatMessage]) -> Chat:
    """Return the prompt: instructions, which are of one response alone, and the conversation."""
    said = [ChatMessage("system", body.instructions)] if body.instructions else []
    return Chat((*said, *conversation))


def responses_options(
    body: ResponsesBody, model: ServedModel, tenant: str, new_seed: Callable[[], int]
) -> Options:
    """Return the options of a response."""
    if body.reasoning is not None:
        check_reasoning(body.reasoning.effort, "reasoning", model)
    if body.generate is False:
        raise refused("`generate` cannot be false here.", "generate", "unsupported")
    logprobs = LOGPROBS in (body.include or ())
    if body.top_logprobs and not logprobs:
        said = f"`top_logprobs` needs `include` to hold {LOGPROBS!r}."
        raise refused(said, "top_logprobs", "invalid")
    found = options(
        body,
        model,
        tenant,
        new_seed,
        tokens_max=body.max_output_tokens,
        logprobs=(body.top_logprobs or 0) if logprobs else -1,
        includes=(ORIGINS, LOGPROBS, HYPOTHESES, *(() if model.reasons else (REASONING,))),
        grammar=flat_grammar_of(body.text.format if body.text else None),
        grammar_field="text.format",
    )
    if HYPOTHESES not in (body.include or ()):
        return found
    if found.beam_width == 1:
        raise refused(f"{HYPOTHESES!r} needs `beam_width`.", "include", "invalid")
    return msgspec.structs.replace(found, shows_hypotheses=True)


@dataclass(slots=True)
class ResponsesSerializer:
    """One response as it comes to be; its text is kept, since the last events repeat it."""

    metadata: ReplyMetadata
    body: ResponsesBody
    completed_at: Callable[[], float]
    stream_id: str | None = None
    stored: bool = False
    """Whether the server keeps it."""
    on_over: Callable[[ResponseObject], None] | None = None
    """Called with the whole response once it has ended well or at its limit."""
    sequence_number: int = 0
    choice: GatheredChoice = field(default_factory=lambda: GatheredChoice(0))

    def first_chunks(self) -> list[msgspec.Struct]:
        """Return the events that come before any text."""
        item_id, empty = self.item_id, OutputText("", origins=self.metadata.shown(()))
        return [
            self._state(Created, "in_progress"),
            self._state(InProgress, "in_progress"),
            ItemAdded(*self._next(), item=OutputMessage(item_id, "in_progress", ())),
            PartAdded(*self._next(), item_id=item_id, part=empty),
        ]

    def chunks(self, event: Delta | Ended, usage: Usage | None) -> list[msgspec.Struct]:
        """Return a delta for new text, and what closes the text at its end."""
        self.choice.add(event)
        metadata, said = self.metadata, list[msgspec.Struct]()
        tokens: tuple[TokenText, ...] = ()
        origins: tuple[str, ...] = ()
        if isinstance(event, Delta):
            tokens = event.logprobs if metadata.logprobs else ()
            origins = event.origins if metadata.origins else ()
        if event.text or tokens or origins:
            said.append(
                TextDelta(
                    *self._next(),
                    item_id=self.item_id,
                    delta=event.text,
                    logprobs=token_logprobs(tokens),
                    origins=metadata.shown(origins),
                )
            )
        if isinstance(event, Delta) and event.hypothesis:
            said.append(HypothesisEvent(*self._next(), item_id=self.item_id, text=event.hypothesis))
        return said + self._text_done() if isinstance(event, Ended) else said

    def last_chunks(self, usage: Usage, metrics: RequestMetrics) -> list[msgspec.Struct]:
        """Return the response whole, with usage and metrics."""
        kind = Completed if self.status == "completed" else Incomplete
        last = self._state(kind, self.status, usage, metrics)
        self._over(last.response)
        return [last]

    def cancelled(
        self, usage: Usage | None, metrics: RequestMetrics | None
    ) -> list[msgspec.Struct]:
        """Return the end of a response that its client called off."""
        self.choice.finish_reason = "cancelled"
        return [*self._text_done(), self._state(Incomplete, "cancelled", usage, metrics)]

    def failure(self, error: ApiError) -> list[msgspec.Struct]:
        """Return the end of a response that could not be finished."""
        code = "invalid_prompt" if error.status < 500 else "server_error"
        fault = ResponseFault(code, error.message, error.param)
        return [self._state(ResponseFailed, "failed", fault=fault)]

    def reply(
        self, choices: Sequence[GatheredChoice], usage: Usage, metrics: RequestMetrics
    ) -> ResponseObject:
        """Return the whole response for a client that does not stream."""
        self.choice = choices[0]
        response = self._response(self.status, usage, metrics)
        self._over(response)
        return response

    def _over(self, response: ResponseObject) -> None:
        if self.on_over is not None:
            self.on_over(response)

    @property
    def item_id(self) -> str:
        """The id of the one message that a response has."""
        return self.metadata.id.replace("resp_", "msg_", 1)

    @property
    def status(self) -> str:
        """How the response ended."""
        names = {"stop": "completed", "length": "incomplete", "cancelled": "cancelled"}
        return names.get(self.choice.finish_reason, "in_progress")

    def _text_done(self) -> list[msgspec.Struct]:
        part, message = self._part(), self._message()
        return [
            TextDone(*self._next(), item_id=self.item_id, text=part.text, logprobs=part.logprobs),
            PartDone(*self._next(), item_id=self.item_id, part=part),
            ItemDone(*self._next(), item=message),
        ]

    def _part(self) -> OutputText:
        logprobs = self.choice.logprobs if self.metadata.logprobs else ()
        return OutputText(
            self.choice.text,
            logprobs=token_logprobs(logprobs),
            origins=self.metadata.shown(tuple(self.choice.origins)),
        )

    def _message(self) -> OutputMessage:
        status = "completed" if self.status == "completed" else "incomplete"
        return OutputMessage(self.item_id, status, (self._part(),))

    def _state(
        self,
        kind: type[EventKind],
        status: str,
        usage: Usage | None = None,
        metrics: RequestMetrics | None = None,
        fault: ResponseFault | None = None,
    ) -> EventKind:
        response = self._response(status, usage, metrics, fault)
        return kind(*self._next(), response=response)

    def _response(
        self,
        status: str,
        usage: Usage | None,
        metrics: RequestMetrics | None,
        fault: ResponseFault | None = None,
    ) -> ResponseObject:
        body, metadata = self.body, self.metadata
        over = status not in ("in_progress", "failed")
        return ResponseObject(
            id=metadata.id,
            created_at=metadata.created,
            completed_at=int(self.completed_at()) if status == "completed" else None,
            status=status,
            model=metadata.model,
            output=(self._message(),) if over else (),
            error=fault,
            incomplete_details=(
                IncompleteDetails("max_output_tokens") if status == "incomplete" else None
            ),
            instructions=body.instructions,
            max_output_tokens=body.max_output_tokens,
            metadata=body.metadata or {},
            parallel_tool_calls=body.parallel_tool_calls is not False,
            previous_response_id=body.previous_response_id,
            temperature=neutral_temperature(body) if body.temperature is None else body.temperature,
            top_p=1.0 if body.top_p is None else body.top_p,
            top_logprobs=body.top_logprobs or 0,
            text=_text_config(body),
            reasoning=body.reasoning,
            service_tier=tier_of(body),
            truncation=body.truncation or "disabled",
            store=self.stored,
            usage=None if usage is None else response_usage(usage),
            metrics=metrics,
        )

    def _next(self) -> tuple[int, str | UnsetType]:
        """Return what every event carries: its number, and the stream if there is one."""
        number = self.sequence_number
        self.sequence_number += 1
        return number, UNSET if self.stream_id is None else self.stream_id


def _text_config(body: ResponsesBody) -> TextConfig:
    requested = body.text or TextRequest()
    return TextConfig(requested.format or FlatFormat("text"), requested.verbosity or UNSET)


def response_usage(usage: Usage) -> ResponseUsage:
    """Return token counts under the names that Responses has for them."""
    cached = usage.prompt_tokens_details
    predicted = usage.completion_tokens_details
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputDetails(cached.cached_tokens if cached else 0),
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputDetails(
            accepted_prediction_tokens=(
                predicted.accepted_prediction_tokens if predicted else UNSET
            ),
            rejected_prediction_tokens=(
                predicted.rejected_prediction_tokens if predicted else UNSET
            ),
        ),
        total_tokens=usage.total_tokens,
    )
