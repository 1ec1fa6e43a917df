"""Serializer of `/v1/responses`: engine events to the events of a response."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from draftwerk.actors.events.client_events import Delta, Ended
from draftwerk.api.openai.responses.items.response_items import OutputItems
from draftwerk.api.openai.responses.items.response_tools import offered_tools
from draftwerk.api.openai.responses.responses_events import (
    Completed,
    Created,
    Incomplete,
    InProgress,
    ResponseEvent,
    ResponseFailed,
)
from draftwerk.api.openai.responses.responses_objects import (
    ConversationName,
    IncompleteDetails,
    InputDetails,
    OutputDetails,
    ResponseFault,
    ResponseObject,
    ResponseUsage,
    TextConfig,
    ToolObject,
)
from draftwerk.api.openai.responses.responses_schema import (
    ResponsesBody,
    TextRequest,
    conversation_id_of,
)
from draftwerk.api.requests.text_schema import FlatFormat
from draftwerk.api.requests.tools_schema import CustomFormat, FlatTool, SpacedTool
from draftwerk.api.responses.serializer import GatheredChoice, ReplyMetadata
from draftwerk.api.shared.errors import OUT_OF_TIME, TOO_LONG, ApiError
from draftwerk.api.shared.usage import PromptDetails, RequestMetrics, Usage
from draftwerk.speculative.requests.client_prompts import ChatMessage, ToolCall
from draftwerk.speculative.sampling import Sampling

KEPT_CODES = (*OUT_OF_TIME, TOO_LONG)
"""Codes that clients act on; other failures have those of OpenAI."""
EventKind = TypeVar("EventKind", bound=ResponseEvent)


@dataclass(slots=True)
class ResponsesSerializer:
    """One response as it comes to be; its text is kept, since the last events repeat it."""

    metadata: ReplyMetadata
    body: ResponsesBody
    drawn: Sampling
    """How its tokens are drawn, which the response repeats."""
    completed_at: Callable[[], float]
    stream_id: str | None = None
    stored: bool = False
    """Whether the server keeps it."""
    on_over: Callable[[ResponseObject], None] | None = None
    """Called with the whole response once it has ended well or at its limit."""
    last: ResponseObject | None = None
    """The response as the latest event told it."""
    sequence_number: int = 0
    choice: GatheredChoice = field(default_factory=lambda: GatheredChoice(0))
    items: OutputItems = field(init=False)

    def __post_init__(self) -> None:
        self.items = OutputItems(self.metadata, self._next, offered_tools(self.body.tools))

    def first_chunks(self) -> list[msgspec.Struct]:
        """Return the events that come before any token; plain text has its message at once."""
        return [
            self._state(Created, "in_progress"),
            self._state(InProgress, "in_progress"),
            *([] if self.metadata.is_parsed or self.is_empty else self.items.open("message")),
        ]

    def chunks(self, event: Delta | Ended, usage: Usage | None) -> list[msgspec.Struct]:
        """Return what is new, and what closes the output at its end."""
        self.choice.add(event)
        said = self.items.add(event)
        if isinstance(event, Ended) and not self.is_empty:
            self.items.untold = event.token_ids or UNSET
            said += self.items.end(cut=self.status != "completed")
        return said

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
        said = self.items.end(cut=True)
        last = self._state(Incomplete, "cancelled", usage, metrics)
        self._over(last.response)
        return [*said, last]

    def failure(self, error: ApiError) -> list[msgspec.Struct]:
        """Return the end of a response that could not be finished."""
        code = "invalid_prompt" if error.status < 500 else "server_error"
        if error.code in KEPT_CODES:
            code = error.code
        fault = ResponseFault(code, error.message, error.param)
        return [self._state(ResponseFailed, "failed", fault=fault)]

    def reply(
        self, choices: Sequence[GatheredChoice], usage: Usage, metrics: RequestMetrics
    ) -> ResponseObject:
        """Return the whole response for a client that does not stream."""
        self.choice = choices[0]
        self._gather(choices[0])
        response = self._response(self.status, usage, metrics)
        self._over(response)
        return response

    def answer(self) -> ChatMessage:
        """Return the answer as a turn of the conversation that goes on from it."""
        choice = self.choice
        tokens = tuple(choice.tokens)
        if not self.metadata.is_parsed:
            return ChatMessage("assistant", choice.text, tokens=tokens)
        said = choice.answer
        calls = tuple(
            ToolCall(self.metadata.call_id(0, index, each.goes_on), each.name, each.arguments)
            for index, each in enumerate(said.calls)
        )
        return ChatMessage(
            "assistant", said.text, tokens=tokens, calls=calls, reasoning=said.reasoning
        )

    def so_far(self) -> ResponseObject:
        """Return the response as it is: its end, or that it has none yet."""
        return self.last or self._response("queued", None, None)

    def _over(self, response: ResponseObject) -> None:
        if self.on_over is not None:
            self.on_over(response)

    @property
    def is_empty(self) -> bool:
        """Whether the prompt is read, and nothing is generated."""
        return self.body.generate is False

    @property
    def status(self) -> str:
        """How the response ended."""
        length = "completed" if self.is_empty else "incomplete"
        names = {"stop": "completed", "length": length, "cancelled": "cancelled"}
        return names.get(self.choice.finish_reason, "in_progress")

    def _gather(self, choice: GatheredChoice) -> None:
        """Make the output of a choice that was gathered; its events have no reader."""
        if self.is_empty:
            return
        if not self.metadata.is_parsed:
            self.items.open("message")
        self.items.add(choice.whole())
        self.items.untold = choice.untold
        self.items.end(cut=self.status != "completed")

    def _state(
        self,
        kind: type[EventKind],
        status: str,
        usage: Usage | None = None,
        metrics: RequestMetrics | None = None,
        fault: ResponseFault | None = None,
    ) -> EventKind:
        self.last = self._response(status, usage, metrics, fault)
        return kind(*self._next(), response=self.last)

    def _response(
        self,
        status: str,
        usage: Usage | None,
        metrics: RequestMetrics | None,
        fault: ResponseFault | None = None,
    ) -> ResponseObject:
        body, metadata = self.body, self.metadata
        conversation = conversation_id_of(body)
        over = status not in ("queued", "in_progress", "failed")
        return ResponseObject(
            id=metadata.id,
            created_at=metadata.created,
            completed_at=int(self.completed_at()) if status == "completed" else None,
            status=status,
            model=metadata.model,
            output=tuple(self.items.done) if over else (),
            error=fault,
            incomplete_details=(
                IncompleteDetails("max_output_tokens") if status == "incomplete" else None
            ),
            instructions=body.instructions,
            max_output_tokens=body.max_output_tokens,
            metadata=body.metadata or {},
            parallel_tool_calls=body.parallel_tool_calls is not False,
            previous_response_id=body.previous_response_id,
            temperature=self.drawn.temperature,
            top_p=self.drawn.top_p,
            top_logprobs=body.top_logprobs or 0,
            text=_text_config(body),
            tools=tuple(map(_tool_object, body.tools or ())),
            tool_choice=body.tool_choice or ("auto" if body.tools else "none"),
            reasoning=body.reasoning,
            presence_penalty=self.drawn.presence_penalty,
            frequency_penalty=self.drawn.frequency_penalty,
            max_tool_calls=body.max_tool_calls,
            prompt_cache_key=body.prompt_cache_key,
            safety_identifier=body.safety_identifier,
            user=body.user,
            conversation=ConversationName(conversation) if conversation else None,
            service_tier="default" if isinstance(body.tier, UnsetType) else body.tier,
            truncation=body.truncation or "disabled",
            background=bool(body.background),
            store=self.stored,
            usage=None if usage is None else response_usage(usage),
            metrics=metrics,
            system_fingerprint=metadata.fingerprint,
        )

    def _next(self) -> tuple[int, str | UnsetType]:
        """Return what every event carries: its number, and the stream if there is one."""
        number = self.sequence_number
        self.sequence_number += 1
        return number, UNSET if self.stream_id is None else self.stream_id


def _tool_object(tool: SpacedTool) -> ToolObject:
    inner = tool.tools if isinstance(tool, FlatTool) else None
    is_function = tool.type == "function"
    return ToolObject(
        type=tool.type,
        name=UNSET if tool.name is None else tool.name,
        description=tool.description,
        parameters=(tool.parameters or msgspec.Raw(b"null")) if is_function else UNSET,
        strict=tool.strict is not False if is_function else UNSET,
        format=(tool.format or CustomFormat()) if tool.type == "custom" else UNSET,
        tools=UNSET if inner is None else tuple(map(_tool_object, inner)),
    )


def _text_config(body: ResponsesBody) -> TextConfig:
    requested = body.text or TextRequest()
    return TextConfig(requested.format or FlatFormat("text"), requested.verbosity or UNSET)


def _input_details(found: PromptDetails | UnsetType) -> InputDetails:
    if isinstance(found, UnsetType):
        return InputDetails(0)
    return InputDetails(
        found.cached_tokens,
        approximate=found.approximate,
        blended_tokens=found.blended_tokens,
        recomputed_share=found.recomputed_share,
        segments=found.segments,
        image_tokens=found.image_tokens,
    )


def response_usage(usage: Usage) -> ResponseUsage:
    """Return token counts under the names that Responses has for them."""
    cached = usage.prompt_tokens_details
    predicted = usage.completion_tokens_details
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=_input_details(cached),
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputDetails(
            reasoning_tokens=(predicted.reasoning_tokens or 0) if predicted else 0,
            accepted_prediction_tokens=(
                predicted.accepted_prediction_tokens if predicted else UNSET
            ),
            rejected_prediction_tokens=(
                predicted.rejected_prediction_tokens if predicted else UNSET
            ),
        ),
        total_tokens=usage.total_tokens,
        approximations=usage.approximations,
    )
