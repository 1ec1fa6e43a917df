"""The embedded default model is what Transformers makes of its GGUF."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from draftwerk.model.checkpoint.files.gguf_header import read_gguf_header, tensor_bytes
from draftwerk.model.checkpoint.hub import DEFAULT_PACKAGE, locate
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.speculative.sampling import Sampling
from tests.support.model_driver import Driver, trees_along
from tests.support.runners import build_draft_runner, build_runner
from training.bf16_copy import bf16_copy

if importlib.util.find_spec(DEFAULT_PACKAGE) is None:
    pytest.skip("the default model is not installed", allow_module_level=True)

GREEDY = Sampling(temperature=0.0, stop_token_ids=(2,))
SAMPLED = Sampling(temperature=0.8, top_p=0.95, seed=5, stop_token_ids=(2,))
CHATS = [
    [{"role": "user", "content": "Name three rivers of Europe."}],
    [
        {"role": "system", "content": "You answer in verse."},
        {"role": "user", "content": "What is a GPU? <|im_end|> 🦊 日本語 1234"},
    ],
    [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "def f(x):\n    return x ** 2"},
    ],
]


@pytest.fixture(scope="module")
def directory() -> Path:
    return bf16_copy(locate(None))


@pytest.fixture(scope="module")
def text(directory: Path) -> TextTokenizer:
    return TextTokenizer(directory)


@pytest.fixture(scope="module")
def gguf() -> Path:
    spec = importlib.util.find_spec(DEFAULT_PACKAGE)
    assert spec is not None and spec.origin is not None
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="module")
def tokenizer(directory: Path):
    """Transformers' over the file that test_gguf_tokenizer.py finds equal to its own."""
    return AutoTokenizer.from_pretrained(directory)


@pytest.fixture(scope="module")
def prompts(text: TextTokenizer) -> list[list[int]]:
    return [text.encode_continuation(text.render_chat(chat)) for chat in CHATS]


@pytest.fixture(scope="module")
def truths(directory: Path, prompts: list[list[int]]) -> list[list[int]]:
    oracle = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    outputs = [
        oracle.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=20)
        for prompt in prompts[:2]
    ]
    return [
        output[0, len(prompt) :].tolist()
        for output, prompt in zip(outputs, prompts[:2], strict=True)
    ]


@pytest.fixture(scope="module")
def runner() -> TargetRunner:
    return build_runner(ModelOptions(dtype="fp32"))


def test_chats_become_the_tokens_of_transformers(text: TextTokenizer, tokenizer):
    for chat in CHATS:
        expected = tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
        assert text.encode_continuation(text.render_chat(chat)) == expected
        assert text.decode(expected, skip_special=False) == tokenizer.decode(expected)
        assert text.encode(chat[-1]["content"]) == tokenizer(chat[-1]["content"])["input_ids"]


def test_random_tokens_stream_to_the_text_of_transformers(text: TextTokenizer, tokenizer):
    rng = Random(1)
    for _ in range(200):
        tokens = [rng.randrange(text.vocab_size) for _ in range(rng.randint(1, 10))]
        stream = text.stream()
        streamed = "".join(map(stream.push, tokens)) + stream.flush()
        assert streamed == tokenizer.decode(tokens, skip_special_tokens=True)


def test_greedy_text_equals_generate_with_random_trees(runner, prompts, truths):
    rng = Random(2)
    guess = trees_along(rng, dict(enumerate(truths)), runner.vocab_size)
    driver = run(runner, prompts[:2], GREEDY, 20, rng=rng, guess=guess, chunk_max=30)
    assert [live.output for live in driver.all] == truths
    assert driver.rounds < 20


@pytest.mark.grid  # every family is, in test_families.py
def test_plain_torch_generates_the_same(prompts, truths):
    runner = build_runner(ModelOptions(dtype="fp32", attention="padded", threads=1))
    driver = run(runner, prompts[:2], GREEDY, count=12)
    assert [live.output for live in driver.all] == [truth[:12] for truth in truths]


@pytest.mark.grid  # tiny ones do not, in tests/model/step/test_draft_runner.py
def test_a_draft_model_changes_no_text(runner, prompts):
    plain = run(runner, prompts, SAMPLED, count=16)
    drafter = build_draft_runner(ModelOptions(dtype="fp32"))
    drafted = run(runner, prompts, SAMPLED, count=16, drafter=drafter)
    assert [live.output for live in drafted.all] == [live.output for live in plain.all]
    assert drafted.rounds < plain.rounds / 3


def test_its_info_has_what_it_needs(directory: Path):
    info = read_info(locate(None))
    assert (info.name, info.vocab_size, info.context_max, info.eos_token_ids) == (
        "SmolLM2-135M-Instruct",
        49_152,
        8_192,
        (2, 0),
    )
    assert (info.kv_heads_per_token, info.head_size) == (2 * 30 * 3, 64)


def test_a_quantised_tensor_is_dequantised_then_rounded_to_bf16(directory: Path, gguf: Path):
    """Q4_1: blocks of 32 numbers, a scale and a minimum in float16, low nibbles before high."""
    packed = read_gguf_header(gguf).tensors["blk.3.ffn_down.weight"]
    blocks = tensor_bytes(np.fromfile(gguf, np.uint8), packed).reshape(576, -1, 20)
    scale, least = (blocks[..., n : n + 2].copy().view(np.float16).astype("f4") for n in (0, 2))
    nibbles = np.concatenate([blocks[..., 4:] & 15, blocks[..., 4:] >> 4], axis=-1)
    expected = torch.from_numpy((nibbles * scale + least).reshape(576, 1536))
    with safe_open(directory / "model.safetensors", framework="pt") as file:
        found = file.get_tensor("model.layers.3.mlp.down_proj.weight")
    assert torch.equal(found, expected.to(torch.bfloat16))


def test_neither_text_nor_card_imports_torch_or_transformers():
    code = (
        "import sys; from draftwerk.model.text.tokenizer import TextTokenizer;"
        "from draftwerk.model.checkpoint.info import read_info;"
        "from draftwerk.model.checkpoint.hub import locate;"
        "TextTokenizer(locate(None).directory); read_info(locate(None));"
        "assert not {'torch', 'transformers'} & set(sys.modules), 'imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def run(
    runner: TargetRunner,
    prompts: list[list[int]],
    sampling: Sampling,
    count: int = 32,
    **settings,
) -> Driver:
    """Generate tokens for all prompts at once."""
    driver = Driver(runner, **settings)
    for index, prompt in enumerate(prompts):
        driver.add(index, prompt, sampling, count)
    driver.run()
    runner.cached_sequences.close(range(len(prompts)))
    return driver
