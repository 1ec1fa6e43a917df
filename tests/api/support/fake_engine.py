"""A small real engine: deterministic text from a prompt and a seed, several tokens at a time.

Tokens are bytes, so that characters and stop strings are cut by token borders all the time. Words
in the prompt make trouble: `!refuse`, `!expire`, `!unmet`, `!fail` (after some text), `!break`,
`!silent`, `!hang`, `!slow`, and `!held`: some text, and the rest once the engine is released.
"""

import asyncio
import codecs
import json
import random
import re
from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from msgspec.structs import replace

from draftwerk.actors.events.client_events import Delta, Ended, Event, Failed, Started
from draftwerk.actors.events.option_texts import FurtherTexts, TokenText
from draftwerk.actors.monitoring.histogram import Histogram
from draftwerk.actors.monitoring.sequence_stats import SequenceStats
from draftwerk.actors.monitoring.snapshot import ActorFigures, ModelFigures, Snapshot
from draftwerk.actors.requests.errors import DrainingError, OverloadedError
from draftwerk.actors.texts.prompt_encoding import prompt_field
from draftwerk.speculative.load.stats import SchedulerLoad, SchedulerStats
from draftwerk.speculative.replies.channels import parser_of
from draftwerk.speculative.replies.half_written import KnownParts, ReplyPiece, open_call
from draftwerk.speculative.replies.parser import ReplyPart
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import (
    Chat,
    ChatMessage,
    Passages,
    Prompt,
    QueryPair,
    Variable,
)
from draftwerk.speculative.requests.further_outputs import FurtherCounts
from draftwerk.speculative.requests.pooling import PoolingOutput, PoolingParams
from draftwerk.speculative.row_parts.state_sums import FRACTION_BITS, LONG

END = 256
NEWLINE = 10
ANSWER = re.compile(r"!answer (\".*\")")
"""What a prompt asks a request with a reply format to be answered, in JSON."""
WORDS = ("draft ", "target ", "ünï ", "東京 ", "🙂", "e\u0301", "\n", "the ", "<b>", '"q" ')


class ByteText:
    """Tokens are the bytes of UTF-8; token 256 ends a text."""

    vocab_size = 257

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_chat(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[str] = (),
        variables: Sequence[tuple[str, Variable]] = (),
    ) -> list[int]:
        turns = [
            [*self.encode(f"{each.role}: "), *(each.tokens or self.encode(each.content)), NEWLINE]
            for each in messages
        ]
        return [token for turn in turns for token in turn]

    def encode_segments(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[str] = (),
        variables: Sequence[tuple[str, Variable]] = (),
    ) -> tuple[list[int], list[tuple[int, int]]]:
        tokens = self.encode_chat(messages, tools, variables)
        texts = [each.content[a:b] for each in messages for a, b in each.segments]
        return tokens, self._located(tokens, texts)

    def _located(self, tokens: Sequence[int], segments: Sequence[str]) -> list[tuple[int, int]]:
        raw, spans, end = bytes(tokens), list[tuple[int, int]](), 0
        for segment in segments:
            start = raw.index(segment.encode(), end)
            end = start + len(segment.encode())
            spans.append((start, end))
        return spans

    def encode_pair(self, query: str, document: str, instruction: str = "") -> list[int]:
        return self.encode(f"{instruction}|{query}|{document}")

    def encode_passages(
        self, documents: Sequence[str], text: str
    ) -> tuple[list[int], list[tuple[int, int]]]:
        tokens = self.encode("".join(f"{each}\n\n" for each in documents) + text)
        return tokens, self._located(tokens, documents)

    def encode_continuation(self, text: str) -> list[int]:
        return self.encode(text)

    encode_following = encode_continuation

    def check_tokens(self, tokens: Sequence[int]) -> None:
        """Accept any: there are no placeholders."""

    def encode_pieces(self, pieces: Sequence[ReplyPiece]) -> list[int]:
        return self.encode("".join(each.text for each in pieces))

    def decode(self, tokens: Sequence[int], skip_special: bool = True) -> str:
        shown = [token for token in tokens if token < END or not skip_special]
        return b"".join(map(self.token_bytes, shown)).decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        return bytes([token]) if token < END else b"<end>"

    def stream(self, prompt: Sequence[int], shown: frozenset[int] = frozenset()) -> "ByteStream":
        return ByteStream()


class ByteStream:
    def __init__(self) -> None:
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        return self.decoder.decode(bytes([token])) if token < END else ""

    def flush(self) -> str:
        return self.decoder.decode(b"", final=True)


def answer_tokens(prompt: str, options: Options, choice: int) -> list[int]:
    """Return the seeded target's answer: a function of prompt, seed and branch, nothing else."""
    sampling = options.sampling
    wanted = ANSWER.search(prompt)
    if options.reply is not None and wanted:
        return _behind([*json.loads(wanted[1]).encode(), END], options)
    seed = sampling.seed if sampling.temperature else 0
    dice = random.Random(f"{prompt}|{seed}|{choice if sampling.temperature else 0}")
    count = 60 if "!" in prompt else dice.randrange(1, 40)
    words = [dice.choice(WORDS) for _ in range(count)]
    tokens = list("".join(words).encode())
    while len(tokens) < sampling.tokens_min or (options.ignore_eos and options.tokens_max):
        if len(tokens) >= max(sampling.tokens_min, options.tokens_max or 0):
            break
        tokens += dice.choice(WORDS).encode()
    tokens.append(END)
    return _behind(tokens, options)


def _behind(tokens: list[int], options: Options) -> list[int]:
    """Return a text's tokens from where the request goes on, up to its limit."""
    tokens = tokens[len(options.written.tokens) :]
    return tokens if options.tokens_max is None else tokens[: options.tokens_max]


def token_text(token: int, count: int) -> TokenText:
    """Return a token with `count` alternatives; all numbers follow from the token."""
    data = ByteText().token_bytes(token)
    alternatives = tuple(
        TokenText(other, chr(other), bytes([other]), -1.0 - other / 100)
        for other in range(97, 97 + count)
    )
    return TokenText(token, data.decode(errors="replace"), data, -token / 100, alternatives)


HELD_STEP = 6
"""Before which a request holds: each step has a token or more."""


@dataclass
class FakeEngine:
    """Counts who entered and who left; serves the rest like the real one."""

    step_s: float = 0.0
    requests_max: int = 1000
    context_max: int = 100_000
    entered: int = 0
    left: int = 0
    finished: int = 0
    submitted: list[tuple[Prompt, Options]] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    closed: bool = False
    empty: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    """Lets those go on that hold."""
    steps: int = 0
    """Of all requests."""
    drafts: int = 0
    actors: ActorFigures = field(default_factory=ActorFigures)
    models: ModelFigures = field(default_factory=ModelFigures)

    @property
    def live(self) -> int:
        return self.entered - self.left

    @asynccontextmanager
    async def generate(
        self, prompt: Prompt, options: Options, *, request_id: str
    ) -> AsyncGenerator[AsyncIterator[Event], None]:
        async with self.generating(prompt, options, request_id) as events:
            self.submitted.append((prompt, options))
            yield events

    @asynccontextmanager
    async def generating(
        self, prompt: Prompt, options: Options, request_id: str
    ) -> AsyncGenerator[AsyncIterator[Event], None]:
        """Serve a request that is not noted in `submitted`."""
        if self.closed:
            raise DrainingError("the server is shutting down")
        if self.live >= self.requests_max:
            raise OverloadedError(1500)
        assert request_id not in self.ids
        self.ids.add(request_id)
        self.entered += 1
        try:
            yield self._events(prompt, options, request_id)
        finally:
            self.left += 1
            self.ids.discard(request_id)
            if not self.live:
                self.empty.set()

    async def _events(
        self, prompt: Prompt, options: Options, request_id: str
    ) -> AsyncGenerator[Event, None]:
        text = prompt_text(prompt)
        tokens = prompt if isinstance(prompt, tuple) else tuple(ByteText().encode(text))
        await asyncio.sleep(self.step_s)
        if "!hang" in text:
            yield Started(request_id=request_id, prompt=tokens)
            await asyncio.Event().wait()
        if "!silent" in text:
            return
        if "!refuse" in text or len(tokens) >= self.context_max:
            field_name = prompt_field(prompt)
            yield Failed(request_id=request_id, kind="refused", reason="too long", field=field_name)
            return
        if "!away" in text:
            yield Failed(request_id=request_id, kind="unavailable", reason="away", retry_after_ms=1)
            return
        yield Started(request_id=request_id, prompt=(*tokens, *options.written.tokens))
        if "!expire" in text or "!unmet" in text:
            kind, ms = ("slo_unmet", 2500) if "!unmet" in text else ("deadline_exceeded", 0)
            yield Failed(request_id=request_id, kind=kind, reason="late", retry_after_ms=ms)
            return
        if options.pooling is not None:
            yield read_end(request_id, text, options.pooling)
            return
        choices = [
            FakeChoice(request_id, index, text, len(tokens), options)
            for index in range(options.choices)
        ]
        dice = random.Random(text)
        steps = 0
        while choices:
            await asyncio.sleep(0.2 if "!slow" in text else self.step_s)
            steps += 1
            if steps == HELD_STEP and "!held" in text:
                await self.released.wait()
            if steps == 3 and "!break" in text:
                raise RuntimeError("a secret reason")
            if steps == 3 and "!fail" in text:
                yield Failed(request_id=request_id, kind="failed", reason="the row failed")
                return
            for choice in list(choices):
                for event in choice.step(dice.randrange(1, 7)):
                    yield event
                if choice.done:
                    choices.remove(choice)
            self.steps += 1
        self.finished += 1

    def trace(self) -> list[dict[str, object]]:
        return [{"ph": "X", "name": "step 1", "ts": 0.0, "dur": 1.0}]

    def snapshot(self) -> Snapshot:
        return Snapshot(
            load=SchedulerLoad(running=self.live, blocks_total=100, blocks_used=25),
            counts=SchedulerStats(
                rounds=7,
                drafts=3,
                draft_tokens=10,
                accepted_tokens=4,
                accepted_by_position=[3, 1],
                accepted_by_source={"ngram": 4},
                drafts_by_source={"ngram": 3},
                drafted_by_source={"ngram": 10},
            ),
            actors=replace(
                self.actors,
                mailbox_depths={"cache": 2},
                mailbox_waits={"cache": Histogram((0.001, 0.01), [3, 2, 1], 0.25)},
            ),
            models=self.models,
            draining=self.closed,
        )

    async def drain(self) -> None:
        self.closed = True
        while self.live:
            self.empty.clear()
            await self.empty.wait()


class FakeChoice:
    """One choice on its way: tokens in bunches, text behind stop strings held back."""

    def __init__(
        self, request_id: str, index: int, prompt: str, prompt_count: int, options: Options
    ) -> None:
        self.request_id, self.index, self.options = request_id, index, options
        self.prompt_count = prompt_count + len(options.written.tokens)
        self.tokens = answer_tokens(prompt, options, index)
        self.position = 0
        self.stream = ByteStream()
        self.held = ""
        self.echo = prompt if options.echo else ""
        self.parser = None if options.reply is None else parser_of(options.reply)
        self.histogram = [0] * 7
        self.drafted = 0
        self.done = False
        self.begun: list[ReplyPart] = []
        self.known = KnownParts()
        self._go_on()

    def _go_on(self) -> None:
        """Stand behind a half-written reply."""
        written, found = self.options.written, list[ReplyPart]()
        for token in written.tokens:
            text = self._text([token])
            found += [ReplyPart("text", text)] if self.parser is None else self.parser.push(text)
        self.known = KnownParts.beyond(found, written)
        self.begun = open_call(found, written.repeats_call)

    def step(self, count: int) -> list[Event]:
        """Commit up to `count` tokens; returns a delta, and the end if this was it."""
        taken = self.tokens[self.position : self.position + count]
        self.position += len(taken)
        self.histogram[max(len(taken) - 1, 0)] += 1
        self.drafted += 6
        if self.options.stop:
            return self._step_with_stops(taken)
        text, self.echo = self.echo + self._text(taken), ""
        events: list[Event] = [self._delta(text, taken)]
        if self.position >= len(self.tokens):
            events.append(self._ended(self._rest(), self.reason))
        return events

    def _rest(self) -> str:
        """Return what ends the text; of one that was cut no half character."""
        return "" if self.reason == "length" else self.stream.flush()

    @property
    def reason(self) -> str:
        return "stop" if self.tokens[-1:] == [END] else "length"

    def _step_with_stops(self, taken: list[int]) -> list[Event]:
        used: list[int] = []
        for token in taken:
            used.append(token)
            self.held += self._text([token])
            found = [self.held.find(stop) for stop in self.options.stop]
            if max(found) >= 0:
                position = min(position for position in found if position >= 0)
                self.position += len(used) - len(taken)
                return [
                    self._delta("", used),
                    self._ended(self._echoed(self.held[:position]), "stop"),
                ]
        if self.position >= len(self.tokens):
            rest = self.held + self._rest()
            return [self._delta("", used), self._ended(self._echoed(rest), self.reason)]
        keep = max(map(len, self.options.stop)) - 1
        cut = max(len(self.held) - keep, 0)
        free, self.held = self.held[:cut], self.held[cut:]
        return [self._delta(self._echoed(free), used)]

    def _echoed(self, text: str) -> str:
        text, self.echo = self.echo + text, ""
        return text

    def _text(self, tokens: Sequence[int]) -> str:
        return "".join(self.stream.push(token) for token in tokens)

    def _delta(self, text: str, tokens: Sequence[int]) -> Delta:
        count = self.options.sampling.logprobs
        logprobs = tuple(token_text(token, count) for token in tokens) if count >= 0 else ()
        origins = ("ngram",) * (len(tokens) - 1) + ("bonus",)
        return Delta(
            request_id=self.request_id,
            choice=self.index,
            text=self._unsent(text),
            tokens=tuple(tokens),
            origins=origins[: len(tokens)],
            logprobs=logprobs,
            further=FurtherTexts(hypothesis="perhaps" if self.options.shows_hypotheses else ""),
            parts=self._parts(text),
        )

    def _unsent(self, text: str) -> str:
        return self.known.rest("text", text) if self.parser is None else text

    def _parts(self, text: str, last: bool = False) -> tuple[ReplyPart, ...]:
        if self.parser is None:
            return ()
        held = self.parser.flush(self.reason == "length") if last else []
        found = [*self.parser.push(text), *held]
        begun, self.begun = self.begun, []
        return (*begun, *map(self.known.rest_of, found))

    def _ended(self, text: str, reason: str) -> Ended:
        self.done = True
        predicted = len(self.options.speculation.prediction)
        parts = self._parts(text, last=True)
        return Ended(
            request_id=self.request_id,
            choice=self.index,
            finish_reason=reason,
            text=self._unsent(text),
            token_count=self.position,
            stats=SequenceStats(
                prompt_count=self.prompt_count,
                cached_count=min(16, self.prompt_count),
                step_count=sum(self.histogram),
                draft_count=self.drafted,
                accepted_histogram=tuple(self.histogram),
                further=_blended(self.options),
                predicted_accepted=predicted // 2,
                predicted_rejected=predicted - predicted // 2,
            ),
            parts=parts,
        )


WIDTH = 8
"""Numbers of a state."""


def states_of(text: str) -> list[float]:
    """Return the numbers that a text comes to, whatever is pooled."""
    dice = random.Random(text)
    return [dice.uniform(-3, 3) for _ in range(WIDTH)]


def read_end(request_id: str, text: str, pooling: PoolingParams) -> Ended:
    """Return the end of a prompt that is read; yes is likelier the more often it says so."""
    fixed = array(LONG, [round(number * 2**FRACTION_BITS) for number in states_of(text)])
    yes = text.count("yes") / 4
    return Ended(
        request_id=request_id,
        choice=0,
        finish_reason="stop",
        text="",
        token_count=0,
        stats=SequenceStats(prompt_count=len(text.encode()), cached_count=2),
        further=FurtherTexts(
            pooling_output=PoolingOutput(
                state_sum=fixed.tobytes() if pooling.pooling else b"",
                answers=(yes - 2.0, -1.0) if pooling.answers else (),
            )
        ),
    )


SEGMENT = (40, 32, 24)
"""Tokens of each segment, those that are found, and those that stay as they are."""


def _blended(options: Options) -> FurtherCounts:
    """Return what is told of segments: of a request with some, there are two."""
    if options.blend is None:
        return FurtherCounts()
    tokens, found, kept = SEGMENT
    segments = ((tokens, found, kept), (tokens, 0, kept))
    return FurtherCounts(
        segments=segments, blended_count=2 * kept, repaired_count=2 * (tokens - kept)
    )


def prompt_text(prompt: Prompt) -> str:
    """Return what the answer is a function of."""
    match prompt:
        case Chat():
            return ByteText().decode(ByteText().encode_chat(prompt.messages))
        case QueryPair():
            return f"{prompt.instruction}|{prompt.query}|{prompt.document}"
        case Passages():
            return "".join(f"{each}\n\n" for each in prompt.documents) + prompt.text
        case str():
            return prompt
        case _:
            return ByteText().decode(prompt)


def whole_text(prompt: Prompt, options: Options, choice: int = 0) -> str:
    """Return the text that a request must get, however it is served: the tests' reference."""
    text = prompt_text(prompt)
    tokens = answer_tokens(text, options, choice)
    raw = bytes(token for token in tokens if token < END)
    is_cut = tokens[-1:] != [END]
    said = codecs.getincrementaldecoder("utf-8")("replace").decode(raw, final=not is_cut)
    found = [
        (said.find(stop) + len(stop), said.find(stop)) for stop in options.stop if stop in said
    ]
    if found:  # Of two that overlap, the one that is whole first.
        said = said[: min(found)[1]]
    return (text if options.echo else "") + said
