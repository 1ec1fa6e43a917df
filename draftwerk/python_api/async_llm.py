"""The engine in an asyncio program: what `draftwerk serve` runs, without the server."""

import asyncio
import logging
from collections.abc import Sequence
from os import PathLike
from typing import Self, Unpack, cast

from msgspec.structs import replace

from draftwerk.actors.events.client_events import Failed
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.api.openai.schema import ChatBody
from draftwerk.api.shared.calls import Call, error_of
from draftwerk.api.shared.config import Settings
from draftwerk.api.shared.errors import ApiError
from draftwerk.api.shared.ports import ServedModel
from draftwerk.api.shared.state import ServerState
from draftwerk.assembly.build import RunningEngine, build_engine
from draftwerk.assembly.loading.model_infos import Report
from draftwerk.python_api.batches import in_order
from draftwerk.python_api.engine_keywords import EngineKeywords, settings_of
from draftwerk.python_api.errors import ClosedError, RequestError
from draftwerk.python_api.output_stream import AsyncOutputStream, Take
from draftwerk.python_api.outputs import OutputBuilder, RequestOutput, TextScore, delta_of
from draftwerk.python_api.requests import (
    AnyPrompt,
    Conversation,
    TextPrompt,
    ToolChoice,
    Tools,
    call_of,
    checked_ids,
    checked_pair,
    checked_text,
    conversation,
    error_of_api,
)
from draftwerk.python_api.sampling_params import SamplingParams

log = logging.getLogger("draftwerk")


class AsyncLLM:
    """A model with its engine, for one event loop.

        async with AsyncLLM("path/to/model", draft="path/to/smaller") as llm:
            output = await llm.chat([{"role": "user", "content": "Hello!"}])

    `model` is a directory, a GGUF file or a hub name; without it, the built-in model. Keywords are
    the settings of `draftwerk serve` that concern the engine; `report` gets progress lines. Raises
    ConfigError for a setting that cannot be, when made, or for a model that cannot, when started.
    """

    def __init__(
        self,
        model: str | PathLike[str] = "",
        *,
        report: Report = log.info,
        **settings: Unpack[EngineKeywords],
    ) -> None:
        self.settings: Settings = settings_of(model, settings)
        self._report = report
        self._host: asyncio.Task[None] | None = None
        """Runs the engine: its scopes must be left by the task that entered them."""
        self._server: ServerState | None = None
        """While the engine runs."""
        self._loaded = False
        """Whether the engine runs, or ran."""
        self._stop = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Load the models; `async with` does it. Raises ConfigError."""
        if self._host is not None:
            raise ClosedError("An LLM is started once.")
        started: asyncio.Future[RunningEngine] = asyncio.get_running_loop().create_future()
        self._host = asyncio.create_task(self._run(started), name="draftwerk engine")
        try:
            await asyncio.wait((self._host, started), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._host.cancel()
            raise
        if self._host.cancelled():
            raise ClosedError("The LLM was closed while it started.")
        if self._host.done():
            self._host.result()

    async def close(self) -> None:
        """End the models. Live requests raise ClosedError."""
        self._stop.set()
        if self._host is None:
            return
        if not self._loaded:
            self._host.cancel()
        await asyncio.wait((self._host,))
        if not self._host.cancelled() and self._host.exception() is not None:
            log.debug("the engine had ended: %r", self._host.exception())

    @property
    def model(self) -> ServedModel:
        """Name, context length and draft sources of what runs."""
        return self._running().model

    async def chat(
        self,
        messages: Conversation | str,
        params: SamplingParams | None = None,
        *,
        tools: Tools | None = None,
        tool_choice: ToolChoice | None = None,
        parallel_tool_calls: bool | None = None,
    ) -> RequestOutput:
        """Return the answer to a conversation; a string is one of a single question.

        What the model called is in `tool_calls`; `message` and a message of the role `tool` for
        each call, with its `tool_call_id`, go on from there.
        """
        asked = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        body = conversation(asked, tools, tool_choice, parallel_tool_calls)
        return await self._output(self._call(body, params))

    async def generate(
        self, prompt: TextPrompt, params: SamplingParams | None = None
    ) -> RequestOutput:
        """Return how the model continues a text, or token ids."""
        return await self._output(self._call(prompt, params))

    async def batch(
        self,
        prompts: Sequence[AnyPrompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Return the outputs of many prompts, in their order, computed together.

        `params` are the same for all, or one for each. The first request that fails ends the
        others, and its error is raised.
        """
        if isinstance(prompts, str) or not isinstance(cast("object", prompts), Sequence):
            raise RequestError("`prompts` must be a list; generate() takes one.", "prompts")
        if isinstance(params, Sequence) and len(params) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts, but {len(params)} params")
        each = params if isinstance(params, Sequence) else [params] * len(prompts)
        # Checked before any runs.
        calls = [self._call(one, how) for one, how in zip(prompts, each, strict=True)]
        return await in_order(calls, self._output, self.settings.requests_max)

    async def score(
        self, texts: Sequence[tuple[TextPrompt, TextPrompt]], alternatives: int = 1
    ) -> list[TextScore]:
        """Return how likely each second text is after its first one, computed together.

        Nothing is generated. First texts may come from the prefix cache; `alternatives` most likely
        tokens are reported beside each token.
        """
        if isinstance(texts, str) or not isinstance(cast("object", texts), Sequence):
            raise RequestError("`texts` must be a list of pairs of texts.", "texts")
        calls = [self._scoring(*checked_pair(each), alternatives or 1) for each in texts]
        outputs = await in_order(calls, self._output, self.settings.requests_max)
        return [TextScore(tokens=each.prompt_logprobs) for each in outputs]

    def _scoring(self, before: TextPrompt, text: TextPrompt, alternatives: int) -> Call:
        tools = self._running().text_tools
        first, rest = (
            encode(checked_text(given, "texts"))
            if isinstance(given, str)
            else self._ids(given, "texts")
            for encode, given in ((tools.encode, before), (tools.encode_following, text))
        )
        params = SamplingParams(temperature=0.0, prompt_logprobs=alternatives)
        call = self._call((*first, *rest), params)
        options = replace(call.options, tokens_max=0, scored_from=len(first))
        return replace(call, options=options)

    def stream(self, prompt: AnyPrompt, params: SamplingParams | None = None) -> AsyncOutputStream:
        """Return the deltas of one request as they come.

            async with llm.stream("Once upon a time") as stream:
                async for delta in stream:
                    print(delta.text, end="")

        A stream that is left, or dropped, cancels its request.
        """
        call = self._call(prompt, params)
        return AsyncOutputStream(lambda take: self._output(call, take))

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text."""
        return self._running().text_tools.encode(checked_text(text, "text"))

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of token ids, special tokens left out."""
        return self._running().text_tools.decode(self._ids(token_ids, "token_ids"))

    def _ids(self, given: object, field: str) -> list[int]:
        return checked_ids(given, self._running().model.vocab_size, field)

    def snapshot(self) -> Snapshot:
        """Return the engine's state and counters of this moment."""
        return self._running().engine.snapshot()

    async def _output(self, call: Call, take: Take = lambda _: None) -> RequestOutput:
        """Run a call to its end; `take` gets each delta as it comes."""
        is_parsed = call.options.reply is not None
        builder = OutputBuilder(is_parsed, call.options.scored_from)
        try:
            async with self._running().generation(call) as generation:
                async for event in generation.events():
                    if isinstance(event, Failed):
                        raise error_of(event, call)
                    builder.add(event)
                    take(delta_of(event, is_parsed))
                return builder.output(generation.timer)
        except ApiError as error:
            raise error_of_api(error) from None

    def _call(self, prompt: AnyPrompt | ChatBody, params: SamplingParams | None) -> Call:
        server = self._running()
        return call_of(prompt, params, server.model, server.new_seed)

    def _running(self) -> ServerState:
        if self._server is None:
            state = "was not started" if self._host is None else "has ended"
            raise ClosedError(f"The LLM {state}.")
        return self._server

    async def _run(self, started: asyncio.Future[RunningEngine]) -> None:
        """Run the engine until `close`; it fails where the engine does."""
        async with build_engine(self.settings, self._report) as running:
            self._server = server = ServerState(
                engine=running.engine,
                text_tools=running.text_tools,
                model=running.model,
                settings=self.settings,
            )
            self._loaded = True
            started.set_result(running)
            try:
                await self._stop.wait()
            finally:
                self._server = None
                server.abort_all()
                # Requests that wait for a place get one now, and are refused.
                running.engine.stop("the LLM is closed")
