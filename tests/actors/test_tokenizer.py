"""The tokenizer: what fits goes on in order, what does not is refused by the name of its field."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import sleep
from typing import TypeVar

import anyio
import pytest
from msgspec.structs import replace

from draftwerk.actors.devices.device import ThreadWorker
from draftwerk.actors.events.client_events import Failed
from draftwerk.actors.mailbox import mailbox
from draftwerk.actors.messages import CacheMessage, Cancel, RouterMessage, Submit, TokenizerMessage
from draftwerk.actors.tokenizer import TEXTS_AT_ONCE, Tokenizer
from draftwerk.speculative.load.size_limits import RequestSizes
from draftwerk.speculative.options.all_options import check_servable
from draftwerk.speculative.parameters.bounds import PLACEHOLDER_MIN
from draftwerk.speculative.request import EncodedRequest, Options, Speculation
from draftwerk.speculative.requests.client_prompts import RETRY_MS, Chat, ChatMessage, Prompt
from draftwerk.speculative.sampling import Grammar, Sampling
from tests.actors.letters import Letters
from tests.actors.loops import DEADLINE_S
from tests.support.waiting import AtOnce

R = TypeVar("R")

PLAIN = Options(sampling=Sampling())
SIZES = RequestSizes(context_max=10, vocab_size=257)


@dataclass
class Slow:
    """Takes its time for every piece of work."""

    delay_s: float

    async def run(self, work: Callable[[], R]) -> R:
        await anyio.sleep(self.delay_s)
        return work()


def submit(
    prompt: Prompt = "abc",
    options: Options = PLAIN,
    request_id: str = "r",
    committed: tuple[tuple[int, ...], ...] = (),
) -> Submit:
    return Submit(request_id=request_id, prompt=prompt, options=options, committed=committed)


def biased(*tokens: int) -> Options:
    return Options(sampling=Sampling(logit_bias=tuple((token, 1.0) for token in tokens)))


def handled(
    *messages: TokenizerMessage,
    worker: object = None,
    text: object = None,
    backend: str = "asyncio",
    **limits: float,
) -> tuple[list[CacheMessage], list[RouterMessage]]:
    """Run a tokenizer over some messages; returns (what went on, what was refused)."""

    async def main() -> tuple[list[CacheMessage], list[RouterMessage]]:
        outbox, inbox = mailbox[TokenizerMessage](len(messages))
        to_cache, cache = mailbox[CacheMessage](len(messages))
        to_router, router = mailbox[RouterMessage](len(messages))
        with inbox, cache, router:
            for message in messages:
                outbox.send_nowait(message)
            outbox.close()
            with to_cache, to_router:
                tokenizer = Tokenizer(
                    inbox,
                    to_cache,
                    to_router,
                    text or Letters(),  # type: ignore[arg-type]
                    check_servable,
                    SIZES,
                    worker or AtOnce(),  # type: ignore[arg-type]
                    **{"encode_s": DEADLINE_S, **limits},  # type: ignore[arg-type]
                )
                await tokenizer.run()
            return [m async for m in cache], [m async for m in router]

    return anyio.run(main, backend=backend)


def passed(message: Submit, **how: object) -> EncodedRequest:
    (encoded,), refusals = handled(message, **how)  # type: ignore[arg-type]
    assert not refusals
    assert isinstance(encoded, EncodedRequest)
    return encoded


def refused(message: Submit, **how: object) -> Failed:
    went_on, (refusal,) = handled(message, **how)  # type: ignore[arg-type]
    assert not went_on
    assert isinstance(refusal, Failed)
    return refusal


@pytest.mark.parametrize(
    "prompt", ["abc", (97, 98, 99), Chat((ChatMessage("user", "ab"), ChatMessage("user", "c")))]
)
def test_every_kind_of_prompt_becomes_tokens(prompt: Prompt) -> None:
    found = passed(submit(prompt))
    assert found == EncodedRequest(
        request_id="r", tokens=(97, 98, 99), options=PLAIN, prediction=(), times=found.times
    )


def test_a_request_that_comes_again_has_no_stages() -> None:
    first, again = passed(submit("abc")), passed(submit("abc", committed=((7,),)))
    assert first.times is not None and first.times.tokenise_s <= first.times.queue_s
    assert again.times is None


def test_a_prediction_becomes_tokens_too() -> None:
    options = replace(PLAIN, speculation=Speculation(prediction="xy"))
    assert passed(submit(options=options)).prediction == (120, 121)


def test_what_was_committed_before_a_crash_goes_on_as_it_is() -> None:
    message = replace(submit(), committed=((1,), (2, 3)), ended=(0,))
    encoded = passed(message)
    assert (encoded.committed, encoded.ended) == (((1,), (2, 3)), (0,))


@pytest.mark.parametrize(
    ("message", "field", "words"),
    [
        (submit(""), "prompt", "empty"),
        (submit(()), "prompt", "empty"),
        (submit(Chat(())), "messages", "empty"),
        (submit("a" * 10), "prompt", "has 10 tokens"),
        (submit(Chat((ChatMessage("user", "a" * 10),))), "messages", "has 10 tokens"),
        (submit((1, 257)), "prompt", "outside the vocabulary of 257"),
        (submit((-1,)), "prompt", "outside the vocabulary"),
        (submit((1, PLACEHOLDER_MIN)), "prompt", "outside the vocabulary of 257"),
        (submit(options=replace(PLAIN, tokens_max=8)), "max_tokens", "3 prompt tokens and 8"),
        (submit(options=biased(257)), "logit_bias", "outside the vocabulary"),
        (submit(options=biased(-1)), "logit_bias", "outside the vocabulary"),
    ],
)
def test_what_cannot_be_served_is_refused_by_the_name_of_its_field(
    message: Submit, field: str, words: str
) -> None:
    refusal = refused(message)
    assert (refusal.request_id, refusal.kind, refusal.field) == ("r", "refused", field)
    assert words in refusal.reason


@pytest.mark.parametrize(
    "message",
    [
        submit("a" * 9),
        submit(options=replace(PLAIN, tokens_max=7)),
        submit((0, 256)),
        submit(options=biased(256, 0)),
    ],
)
def test_what_just_fits_is_served(message: Submit) -> None:
    passed(message)


class Choosy(Letters):
    """Refuses some texts, and breaks on others."""

    def encode(self, text: str) -> list[int]:
        if text == "bad":
            raise ValueError("no such text, please")
        if text == "worse":
            raise KeyError("a bug in a library")
        if text == "later":
            raise TimeoutError("the template has no turn: the machine is busy")
        return super().encode(text)

    encode_continuation = encode_following = encode


def test_a_text_that_the_tokenizer_refuses_is_refused_in_its_words() -> None:
    refusal = refused(submit("bad"), text=Choosy())
    assert (refusal.kind, refusal.field) == ("refused", "prompt")
    assert refusal.reason == "no such text, please"


def test_a_prediction_that_the_tokenizer_refuses_is_refused_by_its_own_name() -> None:
    options = replace(PLAIN, speculation=Speculation(prediction="bad"))
    assert refused(submit(options=options), text=Choosy()).field == "prediction"


def test_a_grammar_that_cannot_be_followed_is_refused_by_the_name_of_its_field() -> None:
    good, bad = (
        replace(PLAIN, sampling=Sampling(grammar=Grammar("regex", pattern))) for pattern in "a("
    )
    refusal = refused(submit(options=bad))
    assert (refusal.kind, refusal.field) == ("refused", "response_format")
    assert refusal.reason == "the grammar cannot be followed: it is open"
    passed(submit(options=good))


class Uncheckable(Letters):
    """Has lost the process that checks grammars, or waits for it."""

    delay_s = 0.0

    def check_grammar(self, grammar: Grammar, written: Sequence[int] = ()) -> None:
        sleep(self.delay_s)
        raise OSError("lost")


class Waiting(Uncheckable):
    delay_s = 0.4


@pytest.mark.parametrize("text", [Uncheckable(), Waiting()])
def test_a_grammar_that_cannot_be_checked_now_is_to_be_sent_again(text: Uncheckable) -> None:
    options = replace(PLAIN, sampling=Sampling(grammar=Grammar("regex", "a")))
    check_s = text.delay_s / 2 or DEADLINE_S
    refusal = refused(submit(options=options), worker=ThreadWorker(), text=text, check_s=check_s)
    assert (refusal.kind, refusal.field) == ("unavailable", "")
    assert refusal.retry_after_ms > 0


class CheckOnThread(AtOnce):
    """Tokenizes at once, and checks in a thread."""

    tokenized = False

    async def run(self, work: Callable[[], R]) -> R:
        if self.tokenized:
            return await ThreadWorker().run(work)
        self.tokenized = True
        return work()


class Late(Letters):
    def check_grammar(self, grammar: Grammar, written: Sequence[int] = ()) -> None:
        sleep(0.1)


def test_a_grammar_may_take_longer_than_a_text() -> None:
    options = replace(PLAIN, sampling=Sampling(grammar=Grammar("regex", "a")))
    passed(submit(options=options), worker=CheckOnThread(), text=Late(), encode_s=0.05)


def test_a_text_that_breaks_the_tokenizer_fails_alone_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    went_on, failures = handled(submit("worse", request_id="a"), submit("fine"), text=Choosy())
    assert [message.request_id for message in went_on] == ["r"]
    (failure,) = failures
    assert isinstance(failure, Failed)
    assert (failure.request_id, failure.kind) == ("a", "failed")
    assert "KeyError" not in failure.reason and "bug" not in failure.reason
    (record,) = caplog.records
    assert record.getMessage() == "request a: the prompt could not be tokenized"
    assert record.exc_info is not None


def test_a_text_that_a_busy_machine_does_not_read_may_be_asked_for_again() -> None:
    went_on, (failure,) = handled(submit("later", request_id="a"), submit("fine"), text=Choosy())
    assert [message.request_id for message in went_on] == ["r"]
    assert isinstance(failure, Failed)
    assert (failure.kind, failure.retry_after_ms) == ("unavailable", RETRY_MS)
    assert "busy" in failure.reason


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_tokenizing_has_a_deadline_and_the_next_request_is_served(backend: str) -> None:
    went_on, refusals = handled(
        submit(request_id="slow"),
        submit((1,)),
        worker=Slow(DEADLINE_S),
        encode_s=0.05,
        backend=backend,
    )
    assert [message.request_id for message in went_on] == []
    assert {refusal.request_id for refusal in refusals} == {"slow", "r"}
    for refusal in refusals:
        assert isinstance(refusal, Failed)
        assert (refusal.kind, refusal.retry_after_ms) == ("unavailable", RETRY_MS)
        assert "not read within 0.05 s" in refusal.reason


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_no_cancel_overtakes_its_request(backend: str) -> None:
    went_on, _ = handled(
        submit(request_id="a"),
        Cancel(request_id="a"),
        submit(request_id="b"),
        Cancel(request_id="b", choice=1),
        worker=Slow(0.002),
        backend=backend,
    )
    for request_id in ("a", "b"):
        own = [type(message) for message in went_on if message.request_id == request_id]
        assert own == [EncodedRequest, Cancel]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_nothing_waits_behind_the_text_of_another_request(backend: str) -> None:
    encoded = threading.Event()

    class SlowText(Letters):
        def encode(self, text: str) -> list[int]:
            if text == "slow":
                assert encoded.wait(DEADLINE_S)
            else:
                encoded.set()
            return super().encode(text)

    went_on, refusals = handled(
        submit("slow", request_id="first"),
        submit("quick", request_id="second"),
        Cancel(request_id="elsewhere"),
        worker=ThreadWorker(),
        text=SlowText(),
        backend=backend,
    )
    assert not refusals, "the first waited for the second, and that for the first"
    assert {message.request_id for message in went_on} == {"elsewhere", "second", "first"}


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_only_a_few_texts_are_encoded_at_once(backend: str) -> None:
    class Counting:
        running = 0
        most = 0

        async def run(self, work: Callable[[], R]) -> R:
            self.running += 1
            self.most = max(self.most, self.running)
            await anyio.sleep(0.001)
            self.running -= 1
            return work()

    worker = Counting()
    requests = [submit(request_id=str(n)) for n in range(3 * TEXTS_AT_ONCE)]
    went_on, _ = handled(*requests, worker=worker, backend=backend)
    assert len(went_on) == len(requests)
    assert worker.most == TEXTS_AT_ONCE


def test_a_cancel_of_a_refused_request_goes_on_to_be_answered() -> None:
    went_on, refusals = handled(submit(""), Cancel(request_id="r"))
    assert went_on == [Cancel(request_id="r")]
    assert len(refusals) == 1
