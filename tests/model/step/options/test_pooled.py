"""Sums of states: equal bits in all chunks, company and kernels, and near Transformers' states."""

from pathlib import Path
from random import Random

import pytest
import torch
from msgspec.structs import replace

from draftwerk.model.native.pool import Pool
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.step.row_walk import BROKEN
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.rounds import Decision, NewSequence, Row
from draftwerk.speculative.row_parts.plain import with_options
from draftwerk.speculative.row_parts.state_sums import joined_sums, summed
from draftwerk.speculative.sampling import Sampling
from tests.support.instruction_sets import TOGETHER
from tests.support.rounds import asked, make_row, proposed
from tests.support.runners import kernel_parts
from tests.support.tiny_models import VOCAB, oracle_logits, save_tiny, tiny_model

TOKENS = tuple(Random(5).choices(range(VOCAB), k=50))
BLOCKS = 4
"""Of 16 slots, for each sequence."""
FAMILIES = ("llama", "qwen3", "gemma3_text", "gemma4_text", "cohere2", "olmo2", "qwen3_moe")
"""Such whose last layers and norms differ."""


def make_runner(directory: Path, pool: Pool | None, dtype: str = "fp32") -> TargetRunner:
    """Return a runner of the kernels; of torch without a pool."""
    return target_runner(kernel_parts(directory, 5 * BLOCKS, pool, dtype))


def row(number: int, start: int, stop: int, pooled: tuple[int, int]) -> Row:
    return make_row(
        start,
        stop,
        sequence_id=number,
        samples=False,
        blocks=tuple(range(number * BLOCKS, (number + 1) * BLOCKS)),
        new_sequence=asked(TOKENS, Sampling(seed=1)),
        scored=pooled,
        pools=pooled[0] < pooled[1],
    )


def company(count: int) -> list[Row]:
    """Return rows that pool, that only read, and that decode."""
    found: list[Row] = []
    for number in range(1, count + 1):
        stop = 9 * number
        decodes = number % 3 == 0
        new = NewSequence(TOKENS[:stop] if decodes else TOKENS, stop, Sampling(seed=1))
        one = row(number, 0, stop, (0, stop) if number % 3 == 1 else (0, 0))
        found.append(replace(one, samples=decodes, new_sequence=new))
    return found


def steps(runner: TargetRunner, cuts: list[int], first: int = 0, others: int = 0) -> list[Decision]:
    """Read TOKENS in chunks that end at `cuts`, states pooled from `first` on."""
    found: list[Decision] = []
    for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, len(TOKENS)], strict=True)):
        pooled = max(start, first), max(start, first, stop)
        rows = (row(0, start, stop, pooled), *company(others))
        decisions = runner.step(proposed(*rows, round_id=number)).decisions
        assert not any(decision.error for decision in decisions)
        found.append(decisions[0])
    return found


def pooled(runner: TargetRunner, cuts: list[int], first: int = 0, others: int = 0) -> bytes:
    """Return the sum of the states from `first` on."""
    total = b""
    for decision in steps(runner, cuts, first, others):
        total = joined_sums(total, decision.options.state_sum)
    return total


CASES = [([7, 30], 0), ([1, 2, 3], 3), ([49], 1), ([16, 32, 48], 4)]


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("first", [0, len(TOKENS) - 1])
def test_chunks_and_company_change_no_bit(
    directory: Path, pool: Pool, first: int, dtype: str
) -> None:
    whole = pooled(make_runner(directory, pool, dtype), [], first)
    for cuts, others in CASES:
        assert pooled(make_runner(directory, pool, dtype), cuts, first, others) == whole


@pytest.mark.timeout(900)  # it may compile the kernels of each
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("isas", TOGETHER)
def test_no_bit_depends_on_the_instruction_set(
    directory: Path, pool: Pool, isas: list[str], dtype: str
) -> None:
    sums = {pooled(make_runner(directory, Pool(2, isa), dtype), [20], others=2) for isa in isas}
    assert len(sums) == 1


@pytest.mark.parametrize("backend", ["torch", "native"])
@pytest.mark.parametrize("family", FAMILIES)
def test_they_are_the_last_hidden_states_of_transformers(
    family: str, backend: str, tmp_path: Path, pool: Pool
) -> None:
    model = save_tiny(tmp_path, family)
    with torch.no_grad():
        states = model.base_model(torch.tensor([TOKENS])).last_hidden_state[0]
    runner = make_runner(tmp_path, pool if backend == "native" else None)
    for first in (0, len(TOKENS) - 1):
        found = summed(pooled(runner, [20], first, others=4))
        count = len(TOKENS) - first
        wanted = states[first:].double().mean(0).tolist()
        assert [each / count for each in found] == pytest.approx(wanted, abs=1e-4)


def test_a_row_beside_it_gets_the_token_that_it_gets_alone(directory: Path, pool: Pool) -> None:
    def decided(*rows: Row) -> Decision:
        return make_runner(directory, pool).step(proposed(*rows)).decisions[-1]

    decoding = company(3)[-1]
    assert decoding.samples
    assert decided(decoding) == decided(row(0, 0, 50, (0, 50)), decoding)


def test_answers_are_weighed_behind_the_prompt(directory: Path, pool: Pool) -> None:
    runner, count = make_runner(directory, pool), len(TOKENS)
    weighed = row(0, 0, count, (count - 1, count))
    weighed = with_options(weighed, pools=False, answers=(5, 9, 5))
    found = runner.step(proposed(*company(2), weighed)).decisions[-1].options.prompt_logprobs
    wanted = oracle_logits(tiny_model("llama"), list(TOKENS))[-1].double().log_softmax(-1)
    assert [each.logprob for each in found] == pytest.approx(
        [float(wanted[token]) for token in (5, 9, 5)], abs=1e-4
    )


def test_states_that_are_no_numbers_fail_their_row_alone(directory: Path, pool: Pool) -> None:
    runner = make_runner(directory, pool)
    runner.parts.pages.values[:, :BLOCKS] = float("nan")
    rows = (row(0, 40, 50, (40, 50)), row(1, 0, 9, (0, 9)))
    broken, fine = runner.step(proposed(*rows)).decisions
    assert broken.error == BROKEN
    assert fine.options.state_sum
    assert not fine.error
