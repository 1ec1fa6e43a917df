"""Verification: a receipt's texts are given to the engine as drafts, and what it decides is
compared with them. What the engine verifies exactly for every request needs no second sampler."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from draftwerk.actors.events.client_events import Delta, Ended, Failed
from draftwerk.api.openai.receipts.receipt import Receipt, ReceiptChoice, options_of
from draftwerk.api.openai.receipts.soundness import fault
from draftwerk.api.shared.calls import Call, error_of
from draftwerk.api.shared.ports import PictureFault, ServedModel
from draftwerk.api.shared.state import ServerState
from draftwerk.speculative.replies.formats import ReplyFormat
from draftwerk.speculative.request import Options

AT_ONCE = 16
"""Texts that are verified together."""


class NamedToken(Struct, frozen=True):
    """One of two tokens at a place."""

    token: int
    text: str


class ReceiptVerdict(Struct, frozen=True, kw_only=True):
    """The verdict on one receipt."""

    verdict: Literal["equal", "different", "refused"]
    """"refused" without asking the model."""
    tokens: int = 0
    """Tokens that were computed and are equal."""
    field: str | UnsetType = UNSET
    """The first place that is wrong."""
    reason: str | UnsetType = UNSET
    claimed: NamedToken | UnsetType = UNSET
    computed: NamedToken | UnsetType = UNSET
    margin: float | UnsetType | None = UNSET
    """By how much the computed token beats the claimed one, in nats, noise included; null where the
    claimed one could not be drawn at all."""


@dataclass(slots=True, eq=False)
class DifferentText(Exception):
    """The first place at which a text is not what is computed."""

    field: str
    reason: str
    tokens: int
    claimed: int | None = None
    computed: int | None = None
    margin: float | None = None


@dataclass(slots=True, eq=False)
class UnservedReceipt(Exception):
    """The field of a receipt that this server does not compute, and why."""

    field: str
    reason: str


@dataclass(slots=True)
class TextComparison:
    """One text as it is claimed, and how much of it was computed."""

    claimed: ReceiptChoice
    path: str
    count: int = 0
    logprobs: list[float] = field(default_factory=list[float])

    def read(self, event: Delta | Ended) -> None:
        """Compare the next event. Raises DifferentText."""
        claimed, path = self.claimed, self.path
        if isinstance(event, Delta):
            self._tokens(event)
            self._logprobs(event)
            return
        if self.count < len(claimed.tokens):
            self._differ(
                f"{path}.tokens[{self.count}]", f"the text ends here: {event.finish_reason}"
            )
        if event.finish_reason != claimed.finish_reason:
            self._differ(f"{path}.finish_reason", f"it is {event.finish_reason}")
        if event.stopped_by != claimed.stop:
            self._differ(f"{path}.stop", f"it is {event.stopped_by!r}")

    def _tokens(self, event: Delta) -> None:
        for place, token in enumerate(event.tokens):
            if self.count >= len(self.claimed.tokens):
                self._differ(f"{self.path}.finish_reason", "the text goes on here")
            wanted = self.claimed.tokens[self.count]
            if token != wanted:
                raise DifferentText(
                    f"{self.path}.tokens[{self.count}]",
                    "another token is computed",
                    self.count,
                    wanted,
                    token,
                    event.further.margin if place + 1 == len(event.tokens) else None,
                )
            self.count += 1

    def _logprobs(self, event: Delta) -> None:
        wanted = self.claimed.logprobs
        if isinstance(wanted, UnsetType):
            return
        for each in event.logprobs:
            place = len(self.logprobs)
            if place >= len(wanted) or wanted[place] != each.logprob:
                self._differ(f"{self.path}.logprobs[{place}]", f"it is {each.logprob!r}")
            self.logprobs.append(each.logprob)

    def _differ(self, field: str, reason: str) -> None:
        raise DifferentText(field, reason, self.count)


@dataclass(slots=True)
class ReceiptVerifier:
    """Verifies receipts for one client."""

    state: ServerState
    request_id: str
    tenant: str
    priority: int = 0
    pictures: tuple[str, ...] = ()
    """Marks of the pictures that were sent again."""
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def verdicts(self, receipts: Iterable[Receipt | ReceiptVerdict]) -> list[ReceiptVerdict]:
        """Return a verdict for each; raises ApiError where the engine cannot compute now."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self.verdict(each)) for each in receipts]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    async def verdict(self, receipt: Receipt | ReceiptVerdict) -> ReceiptVerdict:
        """Return one receipt's verdict, unless it has one."""
        if isinstance(receipt, ReceiptVerdict):
            return receipt
        try:
            self._check_size(receipt)
            await asyncio.to_thread(self._check, receipt)
            async with self.turns:
                return ReceiptVerdict(verdict="equal", tokens=await self._compare(receipt))
        except UnservedReceipt as found:
            return ReceiptVerdict(verdict="refused", field=found.field, reason=found.reason)
        except DifferentText as found:
            return self._different(found)
        except PictureFault as found:
            verdict = "different" if found.is_different else "refused"
            return ReceiptVerdict(verdict=verdict, field=found.field, reason=found.reason)

    def _check_size(self, receipt: Receipt) -> None:
        """Refuse what is too long for the model, before anything is made of it."""
        tokens, most = receipt.prompt.tokens, self.state.model.context_max
        sizes = {"prompt.tokens": 0 if isinstance(tokens, UnsetType) else len(tokens)}
        for number, choice in enumerate(receipt.choices):
            sizes[f"choices[{number}].chain"] = len(choice.chain) - 1
            sizes[f"choices[{number}].tokens"] = len(choice.tokens)
        for path, size in sizes.items():
            if size > most:
                raise UnservedReceipt(path, f"prompt and text have {most} tokens at most")

    def _check(self, receipt: Receipt) -> None:
        """Raise UnservedReceipt for the first field that is not sound, or is of another server."""
        base, signer = self.state.model, self.state.signer
        adapter = str(receipt.parameters.get("adapter", ""))
        model = base.adapted(adapter)
        key = "" if signer is None else signer.public
        found = fault(receipt, (model or base).fingerprint, key)
        if found is not None:
            raise UnservedReceipt(*found)
        if model is None:
            raise UnservedReceipt("parameters.adapter", f"there is no adapter {adapter[:40]}")
        suffix = model.name.removeprefix(base.name)
        if receipt.model not in (f"{name}{suffix}" for name in (base.name, *base.aliases)):
            raise UnservedReceipt("model", "these weights have another name here")
        reply = options_of(receipt).reply
        if reply is not None and not _is_of(reply, base):
            raise UnservedReceipt("parameters.reply", "this model's replies have another form")
        for number, choice in enumerate(receipt.choices):
            for place, token in enumerate(choice.tokens):
                if token >= base.vocab_size > 0:
                    field = f"choices[{number}].tokens[{place}]"
                    raise UnservedReceipt(field, f"the vocabulary has {base.vocab_size} tokens")

    def _different(self, found: DifferentText) -> ReceiptVerdict:
        is_token = found.computed is not None
        return ReceiptVerdict(
            verdict="different",
            tokens=found.tokens,
            field=found.field,
            reason=found.reason,
            claimed=self._candidate(found.claimed),
            computed=self._candidate(found.computed),
            margin=found.margin if is_token else UNSET,
        )

    def _candidate(self, token: int | None) -> NamedToken | UnsetType:
        if token is None:
            return UNSET
        return NamedToken(
            token, self.state.text_tools.token_bytes(token).decode("utf-8", "replace")
        )

    async def _compare(self, receipt: Receipt) -> int:
        """Return how many tokens were computed. Raises DifferentText."""
        options, count = options_of(receipt), 0
        if options.sampling.logprobs > 0:  # alternatives are in no receipt
            options = replace(options, sampling=replace(options.sampling, logprobs=0))
        if options.beam_width > 1:  # a search decides its texts together: it is done again
            texts = {number: TextComparison(each, f"choices[{number}]")
                     for number, each in enumerate(receipt.choices)}  # fmt: skip
            await self._run(receipt, options, texts)
            return sum(each.count for each in texts.values())
        for number, choice in enumerate(receipt.choices):
            forced = replace(
                options, choices=1, first_choice=choice.index, forced_tokens=choice.tokens
            )
            text = TextComparison(choice, f"choices[{number}]")
            await self._run(receipt, forced, {0: text})
            count += text.count
        return count

    def _prompt(self, receipt: Receipt) -> tuple[int, ...]:
        """Return the prompt as it was computed. Raises PictureFault."""
        tokens, pictures, reader = receipt.prompt.tokens, receipt.pictures, self.state.bodies
        assert not isinstance(tokens, UnsetType)
        if isinstance(pictures, UnsetType) or not pictures:
            return tokens
        if reader is None:
            raise PictureFault("pictures", "this server reads no pictures")
        return reader.placed(tokens, pictures, self.pictures)

    async def _run(
        self, receipt: Receipt, options: Options, texts: dict[int, TextComparison]
    ) -> None:
        call = Call(
            request_id=self.request_id,
            kind="verify",
            prompts=[self._prompt(receipt)],
            options=replace(options, tenant=self.tenant, priority=self.priority),
        )
        async with self.state.generation(call) as generation:
            async for event in generation.events():
                if isinstance(event, Failed):
                    if event.kind == "refused":
                        raise UnservedReceipt(f"parameters.{event.field}", event.reason)
                    raise error_of(event, call)
                texts[event.choice].read(event)


def _is_of(reply: ReplyFormat, model: ServedModel) -> bool:
    """Whether a reply has the forms of the model's, as far as it has any."""
    reasoning = model.reasoning
    return (
        reply.calls in (None, model.calls)
        and reply.reasoning in (None, reasoning)
        and reply.answer in (None, None if reasoning is None else reasoning.answer)
    )


class GreedyDistance(Struct, frozen=True):
    """How far a text is from the one that this model takes at temperature 0: no verification."""

    tokens: int
    """Tokens of the text."""
    differ: int
    """Tokens that are not the likeliest."""
    gap_mean: float
    """Mean of how far a token's log-probability is below the likeliest's, in nats."""
    gap_max: float
    first: int | None
    """The first token that is not the likeliest."""
    kind: str = "distance"
    """Texts of other servers are compared, not verified: their numbers are others."""


async def distance(
    state: ServerState, call: Call, before: Sequence[int], text: Sequence[int]
) -> GreedyDistance:
    """Return how far a text is from this model's greedy one. Raises ApiError."""
    options = replace(call.options, tokens_max=0, prompt_logprobs=1, scored_from=len(before))
    asked = replace(call, prompts=[(*before, *text)], options=options)
    gaps: list[float] = []
    async with state.generation(asked) as generation:
        async for event in generation.events():
            if isinstance(event, Failed):
                raise error_of(event, asked)
            if isinstance(event, Delta):
                gaps += [each.top[0].logprob - each.logprob for each in event.further.scored]
    odd = [place for place, gap in enumerate(gaps) if gap > 0.0]
    return GreedyDistance(
        len(gaps),
        len(odd),
        sum(gaps) / max(1, len(gaps)),
        max(gaps, default=0.0),
        odd[0] if odd else None,
    )
