"""The engine in an ordinary program: AsyncLLM on an event loop in a thread of its own."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from os import PathLike
from typing import Self, Unpack
from weakref import finalize

from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.api.shared.ports import ServedModel
from draftwerk.assembly.loading.model_infos import Report
from draftwerk.python_api.async_llm import AsyncLLM, AsyncOutputStream, log
from draftwerk.python_api.engine_keywords import EngineKeywords
from draftwerk.python_api.errors import ClosedError
from draftwerk.python_api.loop_thread import LoopThread
from draftwerk.python_api.outputs import OutputDelta, RequestOutput, TextScore
from draftwerk.python_api.requests import AnyPrompt, Conversation, TextPrompt, ToolChoice, Tools
from draftwerk.python_api.sampling_params import SamplingParams


class LLM:
    """A model with its engine; callable from any thread, and within a running event loop.

        with LLM() as llm:
            print(llm.chat("Why is the sky blue?", SamplingParams(seed=7)).text)

    Arguments and errors are those of AsyncLLM; the models are loaded at once.
    """

    def __init__(
        self,
        model: str | PathLike[str] = "",
        *,
        report: Report = log.info,
        **settings: Unpack[EngineKeywords],
    ) -> None:
        self._llm = AsyncLLM(model, report=report, **settings)
        self._loop = LoopThread()
        # Also at the end of the program, for an LLM that is never closed.
        self._close = finalize(self, _close, self._llm, self._loop)
        try:
            self._loop.run(self._llm.start())
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the models. Requests of other threads raise ClosedError."""
        self._close()

    @property
    def model(self) -> ServedModel:
        """Name, context length and draft sources of what runs."""
        return self._llm.model

    def chat(
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
        return self._loop.run(
            self._llm.chat(
                messages,
                params,
                tools=tools,
                tool_choice=tool_choice,
                parallel_tool_calls=parallel_tool_calls,
            )
        )

    def generate(self, prompt: TextPrompt, params: SamplingParams | None = None) -> RequestOutput:
        """Return how the model continues a text, or token ids."""
        return self._loop.run(self._llm.generate(prompt, params))

    def batch(
        self,
        prompts: Sequence[AnyPrompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Return the outputs of many prompts, in their order, computed together.

        `params` are the same for all, or one for each. The first request that fails ends the
        others, and its error is raised.
        """
        return self._loop.run(self._llm.batch(prompts, params))

    def score(
        self, texts: Sequence[tuple[TextPrompt, TextPrompt]], alternatives: int = 1
    ) -> list[TextScore]:
        """Return how likely each second text is after its first one, computed together.

        Nothing is generated. First texts may come from the prefix cache; `alternatives` most likely
        tokens are reported beside each token.
        """
        return self._loop.run(self._llm.score(texts, alternatives))

    def stream(self, prompt: AnyPrompt, params: SamplingParams | None = None) -> "OutputStream":
        """Return the deltas of one request as they come.

            for delta in llm.stream("Once upon a time"):
                print(delta.text, end="")

        A stream that is closed, or dropped, cancels its request.
        """
        return OutputStream(self._llm.stream(prompt, params), self._loop)

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text."""
        return self._llm.encode(text)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of token ids, special tokens left out."""
        return self._llm.decode(token_ids)

    def snapshot(self) -> Snapshot:
        """Return the engine's state and counters of this moment."""
        return self._loop.run(_snapshot(self._llm))


class OutputStream(Iterator[OutputDelta]):
    """The deltas of one request; leaving its block, or dropping it, cancels the request."""

    def __init__(self, stream: AsyncOutputStream, loop: LoopThread) -> None:
        self._stream = stream
        # A generator of its own: its end comes with the last reference to this object.
        self._deltas = _deltas(stream, loop)

    def __next__(self) -> OutputDelta:
        return next(self._deltas)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what is left of the request."""
        self._deltas.close()

    @property
    def output(self) -> RequestOutput | None:
        """The whole output, once the stream has ended by itself."""
        return self._stream.output


def _deltas(stream: AsyncOutputStream, loop: LoopThread) -> Generator[OutputDelta, None, None]:
    try:
        while (delta := loop.run(_next(stream))) is not None:
            yield delta
    finally:
        with suppress(ClosedError):
            loop.start(stream.aclose())


async def _next(stream: AsyncOutputStream) -> OutputDelta | None:
    return await anext(stream, None)


async def _snapshot(llm: AsyncLLM) -> Snapshot:
    return llm.snapshot()


def _close(llm: AsyncLLM, loop: LoopThread) -> None:
    loop.close(llm.close())
