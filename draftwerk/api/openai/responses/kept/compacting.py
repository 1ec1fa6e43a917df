"""`/v1/responses/compact`: a conversation summed up, so that it goes on in a short prompt."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.types import ASGIApp

from draftwerk.actors.events.client_events import Delta, Ended
from draftwerk.api.openai.responses.fitting import fitted_prompt
from draftwerk.api.openai.responses.items.kept_items import kept_items
from draftwerk.api.openai.responses.items.response_input import compacted
from draftwerk.api.openai.responses.items_schema import InputItems, InputMessage
from draftwerk.api.openai.responses.kept.histories import History
from draftwerk.api.openai.responses.responses_objects import CompactionItem, ResponseUsage
from draftwerk.api.openai.responses.responses_schema import ResponseId, ResponsesBody
from draftwerk.api.openai.responses.responses_serializer import response_usage
from draftwerk.api.openai.responses.responses_translate import (
    responses_names,
    responses_options,
    responses_plan,
)
from draftwerk.api.requests.decode import body_of
from draftwerk.api.requests.field_rows import knows, no_effect
from draftwerk.api.requests.field_types import BodyText, Name
from draftwerk.api.requests.model_choice import loaded_state, served_as
from draftwerk.api.responses.serializer import GatheredChoice
from draftwerk.api.responses.sse import GenerationResponse
from draftwerk.api.shared.handling import RequestContext, call_of, tenant_of
from draftwerk.api.shared.usage import RequestMetrics, Usage
from draftwerk.speculative.requests.client_prompts import ChatMessage

SUMMARY_TOKENS = 1024
TASK = (
    "Sum up the conversation so far, so that it can go on from the summary alone: what was asked "
    "for, what was decided and done, names and numbers that matter, and what is still to do. "
    "Answer with the summary only."
)


@knows(
    no_effect("prompt_cache_key", "prompt_cache_options", why="prefixes are found without it"),
    no_effect("prompt_cache_retention", why="prefixes are kept while there is room"),
    no_effect("service_tier", why="there is one"),
    no_effect("image", why="there are no images"),
)
class CompactBody(Struct, frozen=True, kw_only=True):
    """`POST /v1/responses/compact`."""

    model: Name
    input: InputItems | None = None
    instructions: BodyText | None = None
    previous_response_id: ResponseId | None = None


class CompactedResponse(Struct, frozen=True, kw_only=True):
    """Items that stand for a conversation: its user's messages, and a summary."""

    id: str
    object: str = "response.compaction"
    created_at: int
    output: tuple[Any, ...]
    usage: ResponseUsage


COMPACT = msgspec.json.Decoder(CompactBody)


@dataclass(slots=True)
class CompactionSerializer:
    """The summary as the last of the items that stand for the conversation."""

    response_id: str
    created: int
    messages: list[dict[str, Any]]
    is_parsed: bool

    def first_chunks(self) -> list[msgspec.Struct]:
        return []

    def chunks(self, event: Delta | Ended, usage: Usage | None) -> list[msgspec.Struct]:
        return []

    def last_chunks(self, usage: Usage, metrics: RequestMetrics) -> list[msgspec.Struct]:
        return []

    def failure(self, error: Exception) -> list[msgspec.Struct]:
        return []

    def reply(
        self, choices: Sequence[GatheredChoice], usage: Usage, metrics: RequestMetrics
    ) -> CompactedResponse:
        """Return the compacted conversation."""
        choice = choices[0]
        summary = choice.answer.text if self.is_parsed else choice.text
        item = CompactionItem("cmp_" + self.response_id, compacted(summary.strip()))
        return CompactedResponse(
            id="resp_" + self.response_id,
            created_at=self.created,
            output=(*self.messages, item),
            usage=response_usage(usage),
        )


async def compact(request: Request) -> ASGIApp:
    """`POST /v1/responses/compact`."""
    asked = await body_of(request, COMPACT)
    state = await loaded_state(request, asked.model)
    body = ResponsesBody(
        model=asked.model,
        input=[] if asked.input is None else asked.input,
        instructions=asked.instructions,
        previous_response_id=asked.previous_response_id,
        max_output_tokens=min(SUMMARY_TOKENS, max(1, state.model.context_max // 4)),
        truncation="auto",
    )
    turns = History(body, state, tenant_of(request)).conversation()
    plan = responses_plan(body, state.model)
    model = served_as(state.model, body.model)
    options = responses_options(body, RequestContext(model, state.new_seed), plan)
    prompt = await fitted_prompt(state, body, (*turns, ChatMessage("user", TASK)), plan)
    call = call_of(request, "compact", [prompt], options, responses_names(plan))
    messages = [each for each in kept_items(_user_messages(turns))]
    serializer = CompactionSerializer(
        call.request_id, int(state.now()), messages, options.reply is not None
    )
    return GenerationResponse(state, call, serializer, stream=False)


def _user_messages(turns: Sequence[ChatMessage]) -> list[InputMessage]:
    said = [each.content for each in turns if each.role == "user"]
    return [InputMessage(role="user", content=text) for text in said]
