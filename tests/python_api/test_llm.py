"""The synchronous API over a real engine: texts, streams, batches, and how requests end."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from draftwerk import (
    LLM,
    ClosedError,
    ConfigError,
    RequestError,
    RequestOutput,
    SamplingParams,
    Speculation,
)
from draftwerk.model.checkpoint.hf_config import read_config
from tests.support.tiny_adapters import save_adapter
from tests.support.waiting import DEADLINE_S, wait_until

QUESTION = [{"role": "user", "content": "Count to three, then count again."}]
PROMPTS = [f"Once upon a time, in year {year}," for year in range(12)]
ENDLESS = SamplingParams(max_tokens=1500, ignore_eos=True)
SAME: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "seeded": {"seed": 7},
    "top-p": {"seed": 8, "temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.01},
    "penalties": {"seed": 9, "presence_penalty": 0.5, "repetition_penalty": 1.2},
    "bias": {"seed": 10, "logit_bias": {"12": 20.0}, "min_tokens": 5},
    "several": {"seed": 11, "n": 3, "stop": ["e"]},
    "beams": {"beam_width": 4, "n": 2, "length_penalty": 0.5},
}


def nothing_runs(llm: LLM) -> Callable[[], bool]:
    return lambda: llm.snapshot().load.running == llm.snapshot().load.waiting == 0


def texts(output: RequestOutput) -> list[str]:
    return [choice.text for choice in output.choices]


@pytest.mark.parametrize("kind", SAME)
def test_texts_and_usage_are_the_servers(llm: LLM, server_url: str, kind: str) -> None:
    body: dict[str, Any] = {"max_tokens": 30, **SAME[kind]}
    fields = dict(body)
    if "logit_bias" in fields:
        fields["logit_bias"] = {int(token): bias for token, bias in body["logit_bias"].items()}
    params = SamplingParams(**fields)
    for path, sent, output in (
        ("chat/completions", {"messages": QUESTION}, llm.chat(QUESTION, params)),
        ("completions", {"prompt": PROMPTS[0]}, llm.generate(PROMPTS[0], params)),
    ):
        reply = httpx.post(f"{server_url}/v1/{path}", json=body | sent, timeout=DEADLINE_S).json()
        said = [one["message"]["content"] if "message" in one else one["text"]
                for one in reply["choices"]]  # fmt: skip
        assert texts(output) == said
        assert [each.finish_reason for each in output.choices] == [
            one["finish_reason"] for one in reply["choices"]
        ]
        assert output.usage.prompt_tokens == reply["usage"]["prompt_tokens"]
        assert output.usage.completion_tokens == reply["usage"]["completion_tokens"]


FORMS: dict[str, tuple[SamplingParams, dict[str, Any]]] = {
    "schema": (
        SamplingParams(
            seed=5, max_tokens=60, json_schema={"type": "array", "items": {"enum": ["yes", "no"]}}
        ),
        {"type": "json_schema", "json_schema": {"schema": {
            "type": "array", "items": {"enum": ["yes", "no"]}}}},
    ),
    "object": (SamplingParams(seed=5, max_tokens=60, json_object=True), {"type": "json_object"}),
    "regex": (
        SamplingParams(seed=5, max_tokens=60, regex="[A-Z]{2}-[0-9]{4}"),
        {"type": "regex", "pattern": "[A-Z]{2}-[0-9]{4}"},
    ),
    "grammar": (
        SamplingParams(seed=5, max_tokens=60, grammar='start: "yes" | "no"'),
        {"type": "grammar", "grammar": 'start: "yes" | "no"'},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", FORMS)
def test_forms_are_the_servers(llm: LLM, server_url: str, kind: str) -> None:
    params, form = FORMS[kind]
    body = {"messages": QUESTION, "seed": 5, "max_tokens": 60, "response_format": form}
    reply = httpx.post(f"{server_url}/v1/chat/completions", json=body, timeout=DEADLINE_S).json()
    assert llm.chat(QUESTION, params).text == reply["choices"][0]["message"]["content"]


def test_a_string_is_a_conversation_of_one_question(llm: LLM) -> None:
    params = SamplingParams(seed=1, max_tokens=10)
    assert llm.chat("Hello", params).text == llm.chat(
        [{"role": "user", "content": "Hello"}], params
    ).text  # fmt: skip


def test_text_and_its_token_ids_are_continued_alike(llm: LLM) -> None:
    params = SamplingParams(seed=2, max_tokens=10)
    output = llm.generate(llm.encode(PROMPTS[0]), params)
    assert output.text == llm.generate(PROMPTS[0], params).text
    assert llm.decode(output.token_ids) == output.text
    assert llm.decode(llm.encode(PROMPTS[0])) == PROMPTS[0]


def test_a_random_seed_is_returned_and_gives_the_text_again(llm: LLM) -> None:
    output = llm.generate(PROMPTS[0], SamplingParams(max_tokens=10))
    again = llm.generate(PROMPTS[0], SamplingParams(max_tokens=10, seed=output.seed))
    assert again.text == output.text


def test_an_output_is_shown_in_a_few_lines(llm: LLM) -> None:
    output = llm.generate(PROMPTS[0], SamplingParams(max_tokens=200, ignore_eos=True, n=8, seed=1))
    lines = repr(output).splitlines()
    assert len(lines) <= 10
    assert "seed=1" in lines[0] and "and 2 more" in lines[-1]


def test_logprobs_and_origins_come_with_each_token(llm: LLM) -> None:
    output = llm.generate(PROMPTS[0], SamplingParams(temperature=0, max_tokens=8, logprobs=3))
    assert len(output.logprobs) == len(output.origins) == len(output.token_ids) == 8
    for token_id, each in zip(output.token_ids, output.logprobs, strict=True):
        assert each.token_id == token_id == each.top[0].token_id
        assert each.logprob == each.top[0].logprob and len(each.top) == 3


def test_a_stream_ends_with_the_whole_output(llm: LLM) -> None:
    params = SamplingParams(seed=3, max_tokens=40, n=2)
    whole = llm.generate(PROMPTS[1], params)
    with llm.stream(PROMPTS[1], params) as stream:
        assert stream.output is None
        deltas = list(stream)
    assert stream.output is not None and texts(stream.output) == texts(whole)
    for choice in whole.choices:
        own = [delta for delta in deltas if delta.index == choice.index]
        assert "".join(delta.text for delta in own) == choice.text
        assert [delta.finish_reason for delta in own] == [""] * (len(own) - 1) + ["length"]
        assert tuple(token for delta in own for token in delta.token_ids) == choice.token_ids


def test_a_conversation_is_streamed_as_it_is_answered(llm: LLM) -> None:
    params = SamplingParams(seed=4, max_tokens=20)
    text = "".join(delta.text for delta in llm.stream(QUESTION, params))
    assert text == llm.chat(QUESTION, params).text


@pytest.mark.parametrize("how", ["close", "drop", "block"])
def test_a_stream_that_is_left_cancels_its_request(llm: LLM, how: str) -> None:
    stream = llm.stream(PROMPTS[2], ENDLESS)
    next(stream)
    wait_until(lambda: llm.snapshot().load.running == 1)
    if how == "close":
        stream.close()
        assert list(stream) == []
    elif how == "block":
        with stream:
            next(stream)
    else:
        del stream
    wait_until(nothing_runs(llm))


def test_an_interrupt_cancels_the_request(llm: LLM) -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def signal_once_it_runs() -> None:
        wait_until(lambda: llm.snapshot().load.running == 1)
        os.kill(os.getpid(), signal.SIGALRM)

    wait_until(nothing_runs(llm))
    before = signal.signal(signal.SIGALRM, interrupt)
    thread = Thread(target=signal_once_it_runs)
    try:
        with pytest.raises(KeyboardInterrupt):
            thread.start()
            llm.generate(PROMPTS[3], ENDLESS)
    finally:
        thread.join()
        signal.signal(signal.SIGALRM, before)
    wait_until(nothing_runs(llm))


def test_a_batch_is_in_order_and_each_text_as_if_alone(llm: LLM) -> None:
    params = [SamplingParams(seed=seed, max_tokens=5 + seed) for seed in range(len(PROMPTS))]
    outputs = llm.batch(PROMPTS, params)
    assert [output.usage.completion_tokens for output in outputs] == [5 + i for i in range(12)]
    alone = [llm.generate(*each).text for each in zip(PROMPTS, params, strict=True)]
    assert [output.text for output in outputs] == alone
    assert llm.batch([]) == []


def test_a_batch_mixes_texts_tokens_and_conversations(llm: LLM) -> None:
    params = SamplingParams(seed=6, max_tokens=6)
    outputs = llm.batch([PROMPTS[0], llm.encode(PROMPTS[0]), QUESTION], params)
    assert outputs[0].text == outputs[1].text
    assert outputs[2].text == llm.chat(QUESTION, params).text


def test_a_batch_with_a_wrong_request_runs_none(llm: LLM) -> None:
    wait_until(nothing_runs(llm))
    with pytest.raises(RequestError, match="empty"):
        llm.batch([PROMPTS[0], []], ENDLESS)
    with pytest.raises(ValueError, match="2 prompts, but 1 params"):
        llm.batch(PROMPTS[:2], [ENDLESS])
    assert nothing_runs(llm)()


def test_the_first_failure_of_a_batch_ends_the_others(llm: LLM) -> None:
    too_long = SamplingParams(max_tokens=10**5)
    with pytest.raises(RequestError, match="maximum context length") as failed:
        llm.batch(PROMPTS[:3], [ENDLESS, too_long, ENDLESS])
    assert failed.value.field == "max_tokens"
    wait_until(nothing_runs(llm))


def test_speculation_changes_the_work_and_no_text(llm: LLM) -> None:
    prompt = "one two three one two three one two three one two"
    fields: dict[str, Any] = {"seed": 5, "temperature": 0.5, "max_tokens": 60}
    plain = llm.generate(prompt, SamplingParams(**fields, speculation="off"))
    assert set(plain.origins) == {"target"}
    for chosen in (
        Speculation(methods=("draft",), draft_max=2),
        Speculation(methods=("ngram", "suffix")),
        Speculation(prediction=plain.text),
        Speculation(enabled=False),
        "auto",
    ):
        output = llm.generate(prompt, SamplingParams(**fields, speculation=chosen))
        assert output.text == plain.text
    short = llm.generate(
        prompt, SamplingParams(**fields, speculation=Speculation(draft_max=1))
    ).metrics.speculative_decoding
    assert short is not None and short.num_spec_tokens <= 1
    told = llm.generate(
        prompt, SamplingParams(**fields, speculation=Speculation(prediction=plain.text))
    )
    assert "prediction" in told.origins


REFUSED: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 3},
    "top_p": {"top_p": float("nan")},
    "max_tokens": {"max_tokens": 0},
    "n": {"n": 17},
    "logprobs": {"logprobs": 21},
    "stop": {"stop": ["a"] * 5},
    "priority": {"priority": 10**4},
    "json_schema": {"json_schema": "{}"},
    "grammar": {"regex": "a", "grammar": 'start: "a"'},
    "speculation": {"speculation": "fast"},
    "speculation.draft_max": {"speculation": Speculation(draft_max=65)},
}


@pytest.mark.parametrize("field", REFUSED)
def test_a_parameter_that_cannot_be_is_named(field: str) -> None:
    with pytest.raises(RequestError, match=f"`{field}`") as refused:
        SamplingParams(**REFUSED[field])
    assert refused.value.field == field


NOT_HERE: dict[str, dict[str, Any]] = {
    "speculation.methods": {"speculation": Speculation(methods=("oracle",))},
    "logit_bias": {"logit_bias": {10**6: 1.0}},
    "max_tokens": {"max_tokens": 10**5},
    "min_tokens": {"min_tokens": 9, "max_tokens": 8},
    "early_stopping": {"early_stopping": True},
    "ignore_eos": {"ignore_eos": True, "regex": "a"},
    "n": {"n": 3, "beam_width": 2},
    "regex": {"regex": "("},
    "json_schema": {"json_schema": {"type": "nonsense"}},
}


@pytest.mark.parametrize("field", NOT_HERE)
def test_a_parameter_that_this_engine_cannot_obey_is_named(llm: LLM, field: str) -> None:
    with pytest.raises(RequestError) as refused:
        llm.generate("a", SamplingParams(**NOT_HERE[field]))
    assert refused.value.field == field


PROMPTS_REFUSED: dict[str, Any] = {
    "prompt": [],
    "prompt[0]": [1.5],
    "messages[0].role": [{"role": "poet", "content": "x"}],
    "messages[1].content": [{"role": "user", "content": "x"}, {"role": "user"}],
    "messages[0].name": [{"role": "user", "content": "x", "name": 1}],
}


@pytest.mark.parametrize("field", PROMPTS_REFUSED)
def test_a_prompt_that_cannot_be_is_named(llm: LLM, field: str) -> None:
    with pytest.raises(RequestError) as refused:
        llm.generate(PROMPTS_REFUSED[field])
    assert refused.value.field == field


@pytest.mark.parametrize("wrong", [None, 5, b"text", {"role": "user"}, "\ud800", [object()]])
def test_what_is_no_prompt_is_refused(llm: LLM, wrong: Any) -> None:
    for ask in (llm.generate, lambda prompt: llm.batch(["a", prompt])):
        with pytest.raises(RequestError, match="`prompt`") as refused:
            ask(wrong)
        assert refused.value.field == "prompt"


@pytest.mark.parametrize("wrong", ["\ud800", object(), b"text", [bytearray(b"text")]])
def test_what_no_message_can_hold_is_refused(llm: LLM, wrong: object) -> None:
    with pytest.raises(RequestError) as refused:
        llm.chat([{"role": "user", "content": wrong}])
    assert refused.value.field == "messages"


def test_a_setting_that_cannot_be_is_named() -> None:
    wrong: dict[str, Any] = {
        "dtyp": {"dtyp": "bf16"},
        "dtype": {"dtype": "fp99"},
        "kv_memory": {"kv_memory": "much"},
        "port": {"port": 1},
        "no such directory": {"model": "/there/is/none"},
    }
    for words, settings in wrong.items():
        with pytest.raises(ConfigError, match=words):
            LLM(**settings)


def test_closing_ends_the_requests_of_other_threads(tiny: Path) -> None:
    llm = LLM(tiny, dtype="fp32", kv_memory="64MiB", requests_max=1)
    ended: list[BaseException] = []

    def ask() -> None:
        try:
            while True:
                llm.generate(PROMPTS[0], ENDLESS)
        except ClosedError as error:
            ended.append(error)

    # One of them has the only place, the others wait for it.
    threads = [Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    stream = llm.stream(PROMPTS[1], ENDLESS)
    wait_until(lambda: llm.snapshot().load.running == 1)
    llm.close()
    for thread in threads:
        thread.join(timeout=DEADLINE_S)
    assert len(ended) == 3
    llm.close()
    with pytest.raises(ClosedError):
        next(stream)
    with pytest.raises(ClosedError, match="closed"):
        llm.generate(PROMPTS[0])


def test_a_prompts_log_probabilities_are_the_same_however_they_are_asked_for(
    llm: LLM, server_url: str
) -> None:
    before, text = "Once upon a time there was", " a fox. And it was a fox! " * 9
    first, rest = llm.encode(before), llm.encode(before + text)[len(llm.encode(before)) :]
    asked = SamplingParams(max_tokens=2, prompt_logprobs=3, temperature=0)
    whole = llm.generate([*first, *rest], asked).prompt_logprobs
    assert [each.token_id for each in whole] == [*first, *rest]
    assert whole[0].logprob is None
    for crowd in (1, 9):  # the second time all of it is cached
        for score in llm.score([(first, rest)] * crowd, alternatives=3):
            assert score.tokens == whole[len(first) :]
    assert score.logprob == sum(each.logprob or 0.0 for each in whole[len(first) :])
    (bare,) = llm.score([([], [*first, *rest])], alternatives=3)
    assert bare.tokens == whole
    assert bare.logprob == sum(each.logprob or 0.0 for each in whole) and not bare.is_greedy
    body = {"prompt": [*first, *rest], "max_tokens": 0, "echo": True, "logprobs": 3}
    reply = httpx.post(f"{server_url}/v1/completions", json=body, timeout=DEADLINE_S).json()
    logprobs = reply["choices"][0]["logprobs"]
    assert logprobs["token_logprobs"] == [each.logprob for each in whole]
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["usage"]["completion_tokens"] == 0
    chat = {"messages": QUESTION, "prompt_logprobs": 0, "max_tokens": 1}
    reply = httpx.post(f"{server_url}/v1/chat/completions", json=chat, timeout=DEADLINE_S).json()
    assert len(reply["prompt_logprobs"]) == reply["usage"]["prompt_tokens"]


def test_requests_name_adapters(tiny: Path, tmp_path: Path) -> None:
    folder = save_adapter(tmp_path / "a", read_config(tiny), rank=8)
    greedy = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
    with LLM(tiny, dtype="fp32", kv_memory="16MiB", lora=[f"poet={folder}"]) as llm:
        plain = llm.generate("A b c", greedy)
        adapted = llm.generate("A b c", replace(greedy, lora="poet"))
        assert plain.text != adapted.text
        assert llm.generate("A b c", greedy).text == plain.text
        with pytest.raises(RequestError, match="which has poet") as refusal:
            llm.generate("A b c", replace(greedy, lora="nobody"))
    assert refusal.value.field == "lora"


WRONG: dict[str, tuple[Callable[[Any], object], str, str]] = {
    "params in a dict": (
        lambda llm: llm.generate("a", {"max_tokens": 2}),
        "params",
        "must be SamplingParams",
    ),
    "prompts of a generator": (
        lambda llm: llm.batch(each for each in "ab"),
        "prompts",
        "must be a list",
    ),
    "several prompts": (lambda llm: llm.generate(["one", "two"]), "prompt", r"batch\(\)"),
    "one prompt of a batch": (lambda llm: llm.batch("one"), "prompts", r"generate\(\)"),
    "no turns": (lambda llm: llm.chat([]), "messages", "messages"),
    "turns that are numbers": (lambda llm: llm.chat([1, 2]), "messages[0]", "messages"),
    "no pair": (lambda llm: llm.score([("a",)]), "texts", "pairs"),
    "one pair alone": (lambda llm: llm.score("ab"), "texts", "pairs"),
    "no text": (lambda llm: llm.score([(None, "b")]), "texts", "None"),
    "half a character": (lambda llm: llm.encode("\ud800"), "text", "surrogates"),
    "bytes": (lambda llm: llm.encode(b"a"), "text", "must be a text"),
    "a text for ids": (lambda llm: llm.decode("ab"), "token_ids", "'ab'"),
    "a fraction": (lambda llm: llm.decode([1, 1.5]), "token_ids", "1.5"),
    "an id below": (lambda llm: llm.decode([-1]), "token_ids", "-1 is outside"),
    "an id beyond": (lambda llm: llm.decode([2**40]), "token_ids", "is outside the vocabulary"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_argument_is_named(llm: LLM, name: str) -> None:
    ask, field, said = WRONG[name]
    with pytest.raises(RequestError, match=said) as refused:
        ask(llm)
    assert refused.value.field == field
