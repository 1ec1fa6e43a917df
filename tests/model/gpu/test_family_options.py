"""Every family on the device in exact mode and with pages in e4m3, by the plain path."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from draftwerk.model.batch.e4m3 import saturated
from draftwerk.model.reference import convolution, decoder
from draftwerk.model.step.around_steps import attached
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.row_parts.state_sums import summed
from tests.model.gpu.test_families import ALWAYS, COUNT, GREEDY, PROMPT, device_runner, drafted
from tests.model.step.test_whole_prompts import make_step, rows_of, save_both_ways, sums
from tests.support.model_driver import generate
from tests.support.runners import make_runner
from tests.support.sampled import in_gate
from tests.support.tiny_models import CASES, save_tiny

pytest.importorskip("triton", reason="Triton is not installed")

SUMS = {
    *("mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "sum", "mean", "_softmax", "cumsum"),
    *("native_layer_norm", "layer_norm", "_scaled_dot_product_flash_attention_for_cpu", "prod"),
    *("scaled_dot_product_attention", "_scaled_mm", "einsum", "norm", "var", "logsumexp"),
}
"""Operations whose kernel, and with it the order of additions, may follow from a shape."""
Form = tuple[Any, ...]


class NotedSums(TorchDispatchMode):
    """Keeps the operation and the shapes of every sum of numbers that are not whole."""

    def __init__(self, forms: set[Form]) -> None:
        super().__init__()
        self.forms = forms

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.split(".")[0]
        if name in SUMS and isinstance(args[0], Tensor) and args[0].is_floating_point():
            self.forms.add((name, *(tuple(at.shape) for at in args if isinstance(at, Tensor))))
        return func(*args, **(kwargs or {}))


class NotedForward:
    """A forward pass, and the forms of its sums."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.forms = inner, set[Form]()

    def __call__(self, *arguments: Any) -> Tensor:
        with NotedSums(self.forms):
            return self.inner(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def noted(runner: TargetRunner) -> tuple[TargetRunner, NotedForward]:
    watched = NotedForward(runner.parts.forward)
    return target_runner(replace(runner.parts, forward=watched)), watched


@pytest.mark.parametrize("name", in_gate(CASES, ALWAYS))
def test_exact_mode_adds_up_in_shapes_that_no_company_changes(name: str, tmp_path: Path):
    """One shape is one kernel, and one order of additions: a card is not needed to see that."""
    family, changes = CASES[name]
    save_tiny(tmp_path, family, **changes)
    expected = generate(make_runner(tmp_path), PROMPT, GREEDY, COUNT)
    exact = partial(device_runner, tmp_path, "tiled", exact=True)
    runner, alone = noted(exact())
    assert generate(runner, PROMPT, GREEDY, COUNT) == expected
    runner, together = noted(exact())
    live = drafted(runner, expected, 1)
    assert live.output == expected
    assert sum(len(decision.path) for decision in live.decisions) > 0
    assert alone.forms == together.forms and alone.forms


def test_sums_of_other_shapes_are_noticed(tmp_path: Path):
    save_tiny(tmp_path, "gemma2")
    expected = generate(make_runner(tmp_path), PROMPT, GREEDY, COUNT)
    runner, alone = noted(device_runner(tmp_path))
    generate(runner, PROMPT, GREEDY, COUNT)
    runner, together = noted(device_runner(tmp_path))
    drafted(runner, expected, 1)
    assert alone.forms != together.forms


@pytest.mark.parametrize("name", in_gate(CASES, ("gemma2", "gpt_oss", "mistral")))
def test_pages_in_e4m3_hold_the_nearest_numbers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    family, changes = CASES[name]
    attention = ("padded", "tiled", "reference")[list(CASES).index(name) % 3]
    save_tiny(tmp_path, family, **changes)
    fp8 = partial(device_runner, tmp_path, attention, kv_dtype="fp8", exact=attention == "tiled")
    plain = generate(fp8(), PROMPT, GREEDY, COUNT)
    trees = drafted(fp8(), plain, 1).output

    def rounded(held: Tensor, slots: Tensor, values: Tensor) -> None:
        held[slots] = saturated(values).to(held.dtype)

    for module in (decoder, convolution):
        monkeypatch.setattr(module, "write", rounded)
    assert plain == trees == generate(make_runner(tmp_path), PROMPT, GREEDY, COUNT)


@pytest.mark.parametrize("attention", ["padded", "tiled"])
@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
def test_vectors_of_whole_texts_are_those_of_the_cpu(family: str, attention: str, tmp_path: Path):
    save_both_ways(tmp_path, family)
    parts = device_runner(tmp_path, attention, block_size=16, exact=attention == "tiled").parts
    rows = [*rows_of(0, [], "mean"), *rows_of(2, [], "mean")]
    found = sums(attached(parts, target_runner(parts).step), rows)
    expected = sums(make_step(tmp_path, None), rows)
    assert found.keys() == expected.keys()
    for number, state_sum in found.items():
        assert summed(state_sum) == pytest.approx(summed(expected[number]), abs=1e-4)
