"""`/infill`, as editors send it: recorded requests of llama.vscode, llama.vim and others."""

import json
from typing import Any

import httpx
import pytest

from tests.api.conftest import MODEL, Served
from tests.api.support.fake_engine import END, whole_text

LLAMA_VSCODE: dict[str, Any] = {
    "input_prefix": "def add(a, b):\n",
    "input_suffix": "\n\nprint(add(1, 2))\n",
    "input_extra": [{"filename": "util.py", "text": "def sub(a, b):\n    return a - b\n"}],
    "prompt": "    ret",
    "n_predict": 16,
    "top_k": 40,
    "top_p": 0.99,
    "stream": False,
    "samplers": ["top_k", "top_p", "infill"],
    "cache_prompt": True,
    "n_indent": 4,
    "t_max_prompt_ms": 500,
    "t_max_predict_ms": 1000,
}
"""What the extension for VS Code sends at a pause in typing."""
LLAMA_VSCODE_AHEAD: dict[str, Any] = {
    **{"input_prefix": "", "input_suffix": "", "prompt": "", "n_predict": 0, "samplers": []},
    "input_extra": LLAMA_VSCODE["input_extra"],
    **{"cache_prompt": True, "t_max_prompt_ms": 500, "t_max_predict_ms": 1},
}
"""What it sends ahead, so that its context is in the cache."""
LLAMA_VIM: dict[str, Any] = {
    **{"id_slot": 0, "input_prefix": "int f() {\n", "input_suffix": "}\n", "input_extra": []},
    **{"prompt": "", "n_predict": 16, "stop": [], "n_indent": 0, "top_k": 40, "top_p": 0.9},
    **{"stream": False, "samplers": ["top_k", "top_p", "infill"], "cache_prompt": True},
    **{"t_max_prompt_ms": 500, "t_max_predict_ms": 500, "response_fields": ["content"]},
}
"""What the plugin for Vim sends."""
MINUET: dict[str, Any] = {
    **{"model": MODEL, "prompt": "x = [1,\n", "suffix": "]\n", "stream": True},
    **{"max_tokens": 56, "top_p": 0.9, "stop": ["\n\n"]},
}
"""What minuet-ai.nvim sends to `/v1/completions` of an `openai_fim_compatible` server."""
LLM_NVIM: dict[str, Any] = {
    **{"model": MODEL, "prompt": "def f():", "suffix": "f()", "stream": False, "raw": False},
    "options": {"num_predict": 30, "temperature": 0.2, "top_p": 0.95},
}
"""What llm.nvim and other plugins for Ollama send to `/api/generate`."""


async def infill(served: Served, body: dict[str, Any], **fields: Any) -> httpx.Response:
    return await served.http.post("/infill", json={**body, **fields})


def files(*named: tuple[str, str]) -> tuple[int, ...]:
    texts = [f"{name}\n{text}".encode() for name, text in (*named, ("filename", ""))]
    return (6, *b"myproject\n", *(token for each in texts for token in (7, *each)))


async def test_a_pause_in_typing(coder: Served) -> None:
    reply = (await infill(coder, LLAMA_VSCODE, seed=5)).json()
    prompt, options = coder.engine.submitted[-1]
    util = ("util.py", LLAMA_VSCODE["input_extra"][0]["text"])
    before, after = LLAMA_VSCODE["input_prefix"], LLAMA_VSCODE["input_suffix"]
    begun = LLAMA_VSCODE["prompt"].encode()
    assert prompt == (*files(util), 1, *before.encode(), 2, *after.encode(), 3, *begun)
    assert (options.tokens_max, options.stop_token_ids) == (16, (4, 5))
    assert (options.sampling.top_k, options.sampling.top_p) == (40, 0.99)
    assert reply["content"] == whole_text(prompt, options)
    assert reply["stop"] is True and reply["model"] == MODEL
    assert reply["stop_type"] in ("eos", "limit")
    assert reply["tokens_evaluated"] == len(prompt)
    assert bytes(each for each in reply["tokens"] if each < END).decode(errors="replace")
    timings = reply["timings"]
    assert timings["predicted_n"] == reply["tokens_predicted"] > 0
    assert timings["prompt_n"] == len(prompt) - 16
    assert timings["draft_n"] > 0


async def test_what_is_sent_ahead_is_read_and_nothing_is_written(coder: Served) -> None:
    reply = await infill(coder, LLAMA_VSCODE_AHEAD)
    assert reply.status_code == 200
    prompt, options = coder.engine.submitted[-1]
    assert options.tokens_max == 0
    assert (
        prompt[: len(files())]
        == files(("util.py", LLAMA_VSCODE["input_extra"][0]["text"]))[: len(files())]
    )


async def test_another_plugin(coder: Served) -> None:
    reply = (await infill(coder, LLAMA_VIM)).json()
    assert reply["content"]
    assert coder.engine.submitted[-1][0] == (1, *b"int f() {\n", 2, *b"}\n", 3)


async def test_a_stream_has_the_same_text_and_ends_with_stop(coder: Served) -> None:
    whole = (await infill(coder, LLAMA_VSCODE, seed=7)).json()
    streamed = await infill(coder, LLAMA_VSCODE, seed=7, stream=True)
    assert streamed.headers["content-type"].startswith("text/event-stream")
    lines = [each for each in streamed.text.split("\n\n") if each]
    chunks = [json.loads(each.removeprefix("data: ")) for each in lines]
    assert [each["stop"] for each in chunks] == [False] * (len(chunks) - 1) + [True]
    assert "".join(each["content"] for each in chunks) == whole["content"]
    assert chunks[-1]["content"] == ""
    assert chunks[-1]["tokens_predicted"] == whole["tokens_predicted"]


async def test_a_failure_in_a_stream_is_its_last_chunk(coder: Served) -> None:
    body = {**LLAMA_VIM, "input_prefix": "!fail", "stream": True, "n_predict": 60}
    reply = await infill(coder, body)
    last = json.loads(reply.text.strip().split("\n\n")[-1].removeprefix("data: "))
    assert last["error"]["code"] == 500


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input_suffix": None}, "input_suffix"),
        ({"input_extra": [{"filename": "a"}]}, "input_extra[0].text"),
        ({"n_predict": -2}, "n_predict"),
        ({"mirostat": 2}, "mirostat"),
        ({"lora": [{"id": 0, "scale": 0.5}]}, "lora"),
    ],
)
async def test_what_is_not_obeyed_is_refused(
    coder: Served, fields: dict[str, Any], param: str
) -> None:
    reply = await infill(coder, LLAMA_VIM, **fields)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


async def test_a_model_without_the_tokens_says_so(served: Served) -> None:
    reply = await infill(served, LLAMA_VIM)
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, "input_suffix")
    assert "`input_suffix` is not supported" in error["message"]
    assert "vocabulary has no tokens" in error["message"]


async def test_clients_of_completions_and_of_ollama(coder: Served) -> None:
    streamed = await coder.http.post("/v1/completions", json=MINUET)
    assert streamed.status_code == 200 and streamed.text.endswith("data: [DONE]\n\n")
    assert coder.engine.submitted[-1][0] == (1, *b"x = [1,\n", 2, *b"]\n", 3)
    reply = (await coder.http.post("/api/generate", json=LLM_NVIM)).json()
    prompt, options = coder.engine.submitted[-1]
    assert prompt == (1, *b"def f():", 2, *b"f()", 3)
    assert options.stop_token_ids == (4, 5)
    assert reply["response"] == whole_text(prompt, options)


@pytest.mark.parametrize("field", ["think", "system"])
async def test_a_gap_has_no_conversation(coder: Served, field: str) -> None:
    body = {**LLM_NVIM, field: True if field == "think" else "Be brief."}
    reply = await coder.http.post("/api/generate", json=body)
    assert reply.status_code == 400
    assert f"`{field}` cannot go with `suffix`" in reply.json()["error"]
