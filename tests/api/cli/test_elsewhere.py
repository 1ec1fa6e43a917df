"""Flags and commands of other servers are obeyed, or answered by our names."""

import pytest

from draftwerk.__main__ import run
from draftwerk.api.cli.arguments import parser
from draftwerk.api.cli.elsewhere import OTHER, SAME, hint_for_flag, is_elsewhere, translated
from draftwerk.api.cli.flag_groups import FLAG_GROUPS
from draftwerk.api.cli.other_servers import OTHER_COMMANDS, SAME_VALUES
from draftwerk.api.shared.config import Settings
from draftwerk.settings.setting_fields import fields_of

OBEYED = {
    "serve --model a/b": {"model": ["a/b"]},
    "serve --model=a/b": {"model": ["a/b"]},
    "serve -m file.gguf": {"model": ["file.gguf"]},
    "serve -hf org/name": {"model": ["org/name"]},
    "serve a/b --tensor-parallel-size 2": {"tensor_parallel": "2"},
    "serve a/b -tp 2": {"tensor_parallel": "2"},
    "launch_server --model-path a/b": {"command": "serve", "model": ["a/b"]},
    "serve a/b --pipeline-parallel-size 2": {"pipeline_parallel": "2"},
    "serve a/b --max-num-seqs 32": {"rows_max": "32"},
    "serve a/b -np 4": {"rows_max": "4"},
    "serve a/b --max-num-batched-tokens=512": {"round_tokens": "512"},
    "serve a/b -b 512": {"round_tokens": "512"},
    "serve a/b --speculative-model c/d": {"draft": "c/d"},
    "serve a/b -md c.gguf": {"draft": "c.gguf"},
    "serve a/b --kv-cache-dtype fp8": {"kv_dtype": "fp8"},
    "serve a/b --kv-cache-dtype=fp8_e4m3": {"kv_dtype": "fp8"},
    "serve a/b --dtype half": {"dtype": "fp16"},
    "serve a/b --dtype=float16": {"dtype": "fp16"},
    "serve a/b --dtype bfloat16": {"dtype": "bf16"},
    "serve a/b --dtype float32": {"dtype": "fp32"},
    "serve a/b --dtype auto": {"dtype": "auto"},
    "serve a/b --device gpu": {"device": "cuda"},
    "serve a/b --generation-config vllm": {"generation_config": "none"},
    "serve a/b --served-model-name half": {"served_model_name": ["half"]},
    "serve a/b --port=8001": {"port": "8001"},
    "serve a/b --max-queued-requests 5": {"queue_max": "5"},
    "chat -m x": {"model": "x"},
    "serve a/b --ssl-certfile c.pem": {"tls_cert": "c.pem"},
    "serve a/b --ssl-key-file k.pem": {"tls_key": "k.pem"},
    "serve a/b --alias chat": {"served_model_name": ["chat"]},
    "serve a/b --lora-modules x=dir": {"lora": ["x=dir"]},
    "list": {"command": "models"},
    "ls": {"command": "models"},
    "remove a/b": {"command": "rm"},
    "quantize": {"command": "quantise"},
    "start a/b": {"command": "serve", "model": ["a/b"]},
    "server -m x.gguf": {"command": "serve", "model": ["x.gguf"]},
    "download a/b": {"command": "pull"},
}
ANSWERED = {
    "serve --max-model-len 4096": "--kv-memory",
    "serve -c 4096": "--kv-memory",
    "serve -ngl 99": "--device",
    "serve --n-gpu-layers 99": "--device",
    "serve --gpu-memory-utilization 0.9": "--memory-max",
    "serve --quantization awq": "--dtype",
    "serve --cache-type-k q8_0": "--kv-dtype",
    "serve -m file.gguf -hf org/name": "--also MODEL",
    "serve x --lora-modules a=b c=d": "repeated for more",
    "serve x --served-model-name one two": "repeated for more",
    "serve x --dtype q4_k_m": "--help dtype",
    "serve x --device mps": "--help device",
    "serve -hff file.gguf": "org/name/file.gguf",
    "serve --temperature 0.7": "in its body",
    "serve -n 128": "in its body",
    "serve --no-warmup": "nothing of the kind",
    "serve --no-webui": "the page",
    "serve --chat-template t.jinja": "chat_template.jinja",
    "serve --tokenizer a/b": "its own files",
    "serve --task embed": "--pooling",
    "serve --log-file x": "standard error",
    "serve --sleep-idle-seconds 5": "--keep-alive",
    "serve --models-dir d": "--models",
    "serve --max-concurrent-requests 5": "--requests-max",
    "serve --speculative-num-steps 3": "--draft-head",
    "serve --speculative-config {}": "--draft-head",
    "serve -ngld 99": "--device",
    "serve --n-cpu-moe 4": "--device",
    "serve --numa distribute": "taskset",
    "serve --root-path /api": "a proxy",
    "serve --disable-cuda-graph": "nothing of the kind",
    "serve -O3": "nothing of the kind",
    "serve --chat-template-kwargs {}": "in its body",
    "serve --frobnicate a": "see draftwerk serve --help",
    "serve --threads 8": "taskset",
    "serve --enable-prefix-caching": "always on",
    "serve --enforce-eager": "nothing of the kind",
    "serve --trust-remote-code": "--families",
    "serve --num-speculative-tokens 5": "--draft-head",
    "serve --tool-call-parser hermes": "--tool-format",
    "serve --reasoning-parser qwen3": "chat template",
    "serve --data-parallel-size 2": "--replicas",
    "serve --flash-attn on": "--attention",
    "serve --mlock": "memory",
    "serve --ubatch-size 512": "--round-tokens",
    "serve --max-loras 4": "--lora",
    "serve --rope-scaling x": "files",
    "serve --revision main": "HF_HUB_CACHE",
    "serve --slot-save-path x": "--kv-store",
    "serve --uvicorn-log-level info": "--log-format",
    "serve --prefix-caching": "always on",
    "run-batch -i f": "/v1/batches",
    "convert a": "quantise",
    "run a/b": "draftwerk chat",
    "ps": "/api/ps",
    "show a/b": "doctor",
    "stop": "SIGTERM",
    "bench": "loadtest",
    "create x": "--models",
    "serve --gpu-memory-utilisation 0.9": "did you mean --gpu-memory-utilization? --kv-memory",
    "serve --max-model-length 5": "did you mean --max-model-len? a text may be as long",
    "serve --temperatur 1": "did you mean --temperature? that is a request's",
    "serve --tensor_parallel_sise 2": "did you mean --tensor-parallel?",
    "serve --max_model_len 5": "--kv-memory",
    "serve --tensor_parallel 2": "did you mean --tensor-parallel?",
    "serve --num_ctx 5": "--kv-memory",
    "serve --quiet": "2> FILE",
    "serve --daemon": "draftwerk.service",
    "serve --ttl 60": "--keep-alive",
    "serve -p 80": "--port N",
    "serve -h 0.0.0.0": "--host 0.0.0.0",
}
MISSPELT = {
    "serve --servedmodelname x": "--served-model-name",
    "serve --served-model x": "--served-model-name",
    "serve --speculative off": "--speculate",
    "serve --spekulate off": "--speculate",
    "serve --devise cpu": "--device",
    "serve --queue-maximum 5": "--queue-max",
    "serve --que-max 5": "--queue-max",
    "serve --tls-certificate c": "--tls-cert",
    "serve --recieipts": "--receipts",
    "serve --kv_memory 1GiB": "--kv-memory",
    "serve --max-memory 1GiB": "--memory-max",
    "serve --re-rank yes-no": "--rerank",
    "serve --rows 5": "--rows-max",
    "serve --api-keys K": "--api-key",
    "serve --slo-policies last": "--slo-policy",
    "chat --temprature 1": "--temperature",
    "chat --sytem x": "--system",
    "serv": "serve",
    "chta": "chat",
    "docter": "doctor",
    "quantice": "quantise",
    "modles": "models",
    "verfy": "verify",
    "relpay": "replay",
}
ALIKE = {"--model", "--slo", "--also"}
"""Each one letter from another flag."""


def test_a_slip_of_a_letter_in_any_flag_is_asked() -> None:
    """One is left out, doubled or behind the next, in turn over the flag."""
    ours = parser().commands()["serve"]._option_string_actions
    for flag in {field.flag for field in fields_of(Settings).values()} - ALIKE:
        for at in range(2, len(flag) - 1):
            before, letter, after, rest = flag[:at], flag[at], flag[at + 1], flag[at + 2 :]
            slip = before + (after, letter * 2 + after, after + letter)[at % 3] + rest
            if slip != flag and not is_elsewhere(slip):
                assert f"did you mean {flag}?" in hint_for_flag(slip, ours), slip


@pytest.mark.parametrize("line", OBEYED)
def test_what_means_the_same_is_obeyed(line: str) -> None:
    parsed = vars(parser().parse_args(translated(line.split())))
    assert OBEYED[line].items() <= parsed.items()


def refusal_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line that a command line is refused in."""
    with pytest.raises(SystemExit) as ended:
        run(words)
    text = capsys.readouterr().err
    assert (ended.value.code, text.count("\n")) == (2, 1)
    return text


@pytest.mark.parametrize("line", [*ANSWERED, *MISSPELT])
def test_what_means_something_else_is_answered_in_one_line(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = refusal_of(line.split(), capsys)
    if line in MISSPELT:
        assert text.endswith(f"did you mean {MISSPELT[line]}?\n")
    assert (ANSWERED | MISSPELT)[line] in text


def test_nothing_of_ours_is_taken_for_anothers() -> None:
    ours = {field.flag for field in fields_of(Settings).values()} - {"--model"}
    assert not ours & {*SAME, *OTHER}
    assert {flag for flag in SAME.values() if flag} <= ours
    assert not SAME.keys() & OTHER.keys()
    assert SAME_VALUES.keys() <= ours
    assert not OTHER_COMMANDS.keys() & parser().commands().keys()


# --- help -----------------------------------------------------------------------------------------


def help_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        run(["serve", "--help", *words])
    assert not ended.value.code
    return capsys.readouterr().out


def test_every_setting_is_in_one_group() -> None:
    grouped = [name for names in FLAG_GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(fields_of(Settings))


def test_help_is_short_and_by_groups(capsys: pytest.CaptureFixture[str]) -> None:
    lines = help_of([], capsys).splitlines()
    assert len(lines) <= 120
    assert max(map(len, lines)) <= 101
    assert [line[:-1] for line in lines if line.endswith(":")][1:] == [*FLAG_GROUPS]


def test_help_of_one_flag_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("kv-memory", "kv_memory"):
        text = help_of([name], capsys)
        assert fields_of(Settings)["kv_memory"].description in text
        assert "DRAFTWERK_KV_MEMORY" in text
    assert help_of(["memory"], capsys).count("environment") == len(FLAG_GROUPS["memory"])


def test_help_of_what_is_none_asks_what_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["serve", "--help", "kv-memry"])
    assert ended.value.code == 2
    assert "did you mean --kv-memory?" in capsys.readouterr().err
