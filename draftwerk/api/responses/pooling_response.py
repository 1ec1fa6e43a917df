"""The response of prompts that are read: some at a time, until all are, and then one reply."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
from starlette.types import Receive, Scope, Send

from draftwerk.actors.events.client_events import Ended, Failed
from draftwerk.api.http.connection import while_connected
from draftwerk.api.responses.sse import send_json
from draftwerk.api.shared.calls import Call, error_of
from draftwerk.api.shared.errors import ApiError, ClientGoneError, response
from draftwerk.api.shared.generation import Generation
from draftwerk.api.shared.state import ServerState
from draftwerk.api.shared.usage import PoolingUsage, PromptDetails, Usage
from draftwerk.speculative.requests.client_prompts import Prompt
from draftwerk.speculative.requests.pooling import PoolingOutput

AT_ONCE = 16
"""Prompts of a request in the engine at once: so a long list does not wait for as many places."""
MakeReply = Callable[[Sequence[PoolingOutput], PoolingUsage], object]


@dataclass(slots=True)
class PoolingResponse:
    """An ASGI response: what is under way in the engine lasts as long as this call at most."""

    state: ServerState
    call: Call
    make_reply: MakeReply
    """Takes what the call's prompts came to, in their order."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with while_connected(receive) as unwatch:
                found, usages = await self._read_all()
                body = msgspec.json.encode(self.make_reply(found, added(usages)))
                unwatch()
                await send_json(body, send)
        except ApiError as error:
            await response(error, scope)(scope, receive, send)
        except ClientGoneError:
            pass

    async def _read_all(self) -> tuple[list[PoolingOutput], list[Usage]]:
        found: list[PoolingOutput] = []
        usages: list[Usage] = []
        begun_s = self.state.clock()
        for group in self._groups():
            options = self.call.options.waited(self.state.clock() - begun_s)
            call = msgspec.structs.replace(self.call, prompts=group, options=options)
            async with self.state.generation(call) as generation:
                found += await self._read(generation)
                usages.append(generation.timer.usage())
        return found, usages

    def _groups(self) -> Iterator[list[Prompt]]:
        size = min(AT_ONCE, self.state.admission.places_max)
        prompts = self.call.prompts
        return (prompts[at : at + size] for at in range(0, len(prompts), size))

    async def _read(self, generation: Generation) -> list[PoolingOutput]:
        """Return what the prompts under way come to, in their order. Raises ApiError."""
        found: dict[int, PoolingOutput] = {}
        async for event in generation.events():
            if isinstance(event, Failed):
                raise error_of(event, self.call)
            if isinstance(event, Ended) and event.further.pooling_output is not None:
                found[event.choice] = event.further.pooling_output
        return [each for _, each in sorted(found.items())]


def added(usages: Sequence[Usage]) -> PoolingUsage:
    """Return the sum of what groups of prompts took."""
    count = sum(usage.prompt_tokens for usage in usages)
    details = (usage.prompt_tokens_details for usage in usages)
    cached = sum(each.cached_tokens for each in details if isinstance(each, PromptDetails))
    return PoolingUsage(count, count, PromptDetails(cached))
