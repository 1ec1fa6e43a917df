"""The items of a response's output as they come to be, and the events that tell of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET, UnsetType

from draftwerk.actors.events.client_events import Delta, Ended
from draftwerk.actors.events.option_texts import TokenText
from draftwerk.api.openai.logprobs import token_logprobs
from draftwerk.api.openai.responses.items.response_tools import (
    CustomInput,
    OfferedTools,
    custom_input,
)
from draftwerk.api.openai.responses.responses_events import (
    ArgumentsDelta,
    ArgumentsDone,
    CustomInputDelta,
    CustomInputDone,
    HypothesisEvent,
    ItemAdded,
    ItemDone,
    PartAdded,
    PartDone,
    ReasoningDelta,
    ReasoningDone,
    TextDelta,
    TextDone,
)
from draftwerk.api.openai.responses.responses_objects import (
    CustomCallItem,
    FunctionCallItem,
    OutputMessage,
    OutputText,
    ReasoningItem,
    ReasoningPart,
    ResponseItem,
)
from draftwerk.api.responses.serializer import ReplyMetadata
from draftwerk.speculative.replies.parser import ReplyPart

NO_TOOLS = OfferedTools()
Number = tuple[int, str | UnsetType]
"""The number of an event,, and the stream if there is one."""


@dataclass(slots=True)
class OutputItems:
    """The finished items, and the one that grows: "message", "reasoning", "call" or none."""

    metadata: ReplyMetadata
    number: Callable[[], Number]
    tools: OfferedTools = NO_TOOLS
    done: list[ResponseItem] = field(default_factory=list[ResponseItem])
    kind: str = ""
    text: str = ""
    """The text of the item that grows."""
    name: str = ""
    """The function's name, while it is a call."""
    input: CustomInput | None = None
    """The input of a custom tool, while it is a call of one."""
    whole: bool = False
    """Whether the call has ended."""
    goes_on: bool = False
    """Whether it had begun in what the response goes on from."""
    logprobs: list[TokenText] = field(default_factory=list[TokenText])
    origins: list[str] = field(default_factory=list[str])
    call_count: int = 0
    untold: tuple[int, ...] | UnsetType = UNSET
    """Tokens of the output, where it was cut and does not tell them."""

    def open(self, kind: str, name: str = "") -> list[msgspec.Struct]:
        """Begin an item."""
        self.kind, self.name, self.text, self.whole = kind, name, "", False
        self.call_count += kind == "call"
        is_custom = kind == "call" and self.tools.called(name).is_custom
        self.input = CustomInput() if is_custom else None
        said: list[msgspec.Struct] = [
            ItemAdded(*self.number(), item=self._item("in_progress"), output_index=self.index)
        ]
        if kind == "message":
            said.append(
                PartAdded(
                    *self.number(),
                    item_id=self.item_id,
                    part=OutputText("", origins=self.metadata.shown(())),
                    output_index=self.index,
                )
            )
        return said

    def add(self, event: Delta | Ended) -> list[msgspec.Struct]:
        """Return the events of new text, tokens and calls."""
        tokens: tuple[TokenText, ...] = ()
        origins: tuple[str, ...] = ()
        if isinstance(event, Delta):
            tokens = event.logprobs if self.metadata.logprobs else ()
            origins = event.origins if self.metadata.origins else ()
        if not self.metadata.is_parsed:
            return [*self._plain(event, tokens, origins), *self._hypothesis(event)]
        said: list[msgspec.Struct] = []
        for part in event.parts:
            found = self._part(part, tokens, origins)
            said += found
            if found and part.kind in ("text", "arguments"):
                tokens, origins = (), ()  # they are told of once
        return [*said, *self._hypothesis(event)]

    def _plain(
        self, event: Delta | Ended, tokens: tuple[TokenText, ...], origins: tuple[str, ...]
    ) -> list[msgspec.Struct]:
        if event.text or tokens or origins:
            return [self._text_delta(event.text, tokens, origins)]
        return []

    def _hypothesis(self, event: Delta | Ended) -> list[msgspec.Struct]:
        """Return the event of a text that is not final, of the message that has it, or will."""
        if not (isinstance(event, Delta) and event.further.hypothesis):
            return []
        return [
            HypothesisEvent(
                *self.number(),
                item_id=self._id_of("message"),
                text=event.further.hypothesis,
                output_index=self.index,
            )
        ]

    def _part(
        self, part: ReplyPart, tokens: tuple[TokenText, ...], origins: tuple[str, ...]
    ) -> list[msgspec.Struct]:
        match part.kind:
            case "reasoning":
                said = self._turn_to("reasoning")
                self.text += part.text
                delta = ReasoningDelta(
                    *self.number(), item_id=self.item_id, delta=part.text, output_index=self.index
                )
                return [*said, delta]
            case "text":
                return [*self._turn_to("message"), self._text_delta(part.text, tokens, origins)]
            case "call":
                closed, self.goes_on = self.close(), part.goes_on
                return [*closed, *self.open("call", part.text)]
            case "arguments":
                self.text += part.text
                if self.input is not None:
                    return self._input_delta(self.input.add(part.text))
                return [
                    ArgumentsDelta(
                        *self.number(),
                        item_id=self.item_id,
                        delta=part.text,
                        output_index=self.index,
                        origins=self.metadata.shown(origins),
                    )
                ]
            case "end":
                self.whole = True
                return self.close()
            case "id":
                return []

    def _input_delta(self, new: str) -> list[msgspec.Struct]:
        """Return the event of new text for a custom tool, if there is any."""
        if not new:
            return []
        return [
            CustomInputDelta(
                *self.number(), item_id=self.item_id, delta=new, output_index=self.index
            )
        ]

    def _turn_to(self, kind: str) -> list[msgspec.Struct]:
        return [] if self.kind == kind else [*self.close(), *self.open(kind)]

    def _text_delta(
        self, text: str, tokens: tuple[TokenText, ...], origins: tuple[str, ...]
    ) -> TextDelta:
        self.text += text
        self.logprobs += tokens
        self.origins += origins
        return TextDelta(
            *self.number(),
            item_id=self.item_id,
            delta=text,
            logprobs=token_logprobs(tokens),
            origins=self.metadata.shown(origins),
            output_index=self.index,
        )

    def close(
        self, cut: bool = False, untold: tuple[int, ...] | UnsetType = UNSET
    ) -> list[msgspec.Struct]:
        """Return the end of the item that grows, if one does; `cut` says that the text was cut."""
        if not self.kind:
            return []
        is_cut = (cut or self.kind == "call") and not self.whole
        item = self._item("incomplete" if is_cut else "completed")
        item = msgspec.structs.replace(item, token_ids=untold)
        said = [
            *self._text_done(item),
            ItemDone(*self.number(), item=item, output_index=self.index),
        ]
        self.done.append(item)
        self.kind = ""
        return said

    def _text_done(self, item: ResponseItem) -> Sequence[msgspec.Struct]:
        item_id, index = self.item_id, self.index
        match item:
            case OutputMessage(content=(part,)):
                text_done = TextDone(
                    *self.number(),
                    item_id=item_id,
                    text=part.text,
                    logprobs=part.logprobs,
                    output_index=index,
                )
                part_done = PartDone(*self.number(), item_id=item_id, part=part, output_index=index)
                return [text_done, part_done]
            case CustomCallItem():
                return [
                    CustomInputDone(
                        *self.number(), item_id=item_id, input=item.input, output_index=index
                    )
                ]
            case FunctionCallItem():
                return [
                    ArgumentsDone(
                        *self.number(),
                        item_id=item_id,
                        name=item.name,
                        arguments=item.arguments,
                        output_index=index,
                    )
                ]
            case _:
                return [
                    ReasoningDone(
                        *self.number(), item_id=item_id, text=self.text, output_index=index
                    )
                ]

    def end(self, cut: bool) -> list[msgspec.Struct]:
        """Return the end of the output, which has at least one item."""
        said: list[msgspec.Struct] = []
        if not self.kind and not self.done:
            said = self.open("message")
        if not self.kind:
            self.done[-1] = msgspec.structs.replace(self.done[-1], token_ids=self.untold)
        return [*said, *self.close(cut, self.untold)]

    @property
    def index(self) -> int:
        """Number of the item that grows."""
        return len(self.done)

    @property
    def item_id(self) -> str:
        """The id of the item that grows; the first of a kind is named after the response alone."""
        return self._id_of(self.kind)

    def _id_of(self, kind: str) -> str:
        prefix = {"message": "msg_", "reasoning": "rs_", "call": "fc_"}[kind]
        found = self.metadata.id.replace("resp_", prefix, 1)
        return found if kind != "call" else f"{found}_{self.call_count}"

    def _item(self, status: str) -> ResponseItem:
        started = status != "in_progress"
        if self.kind == "call":
            call_id = self.metadata.call_id(0, self.call_count - 1, self.goes_on)
            called = self.tools.called(self.name)
            space = UNSET if called.namespace is None else called.namespace
            if called.is_custom:
                text = custom_input(self.text)
                return CustomCallItem(self.item_id, call_id, called.name, text, status, space)
            return FunctionCallItem(self.item_id, call_id, called.name, self.text, status, space)
        if self.kind == "reasoning":
            parts = (ReasoningPart(self.text),) if started else ()
            return ReasoningItem(self.item_id, parts, status)
        part = OutputText(
            self.text,
            logprobs=token_logprobs(self.logprobs) if self.metadata.logprobs else (),
            origins=self.metadata.shown(tuple(self.origins)),
        )
        return OutputMessage(self.item_id, status, (part,) if started else ())
