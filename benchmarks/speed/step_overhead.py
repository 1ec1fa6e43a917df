"""What a round costs beside the model: `python -m benchmarks.speed.step_overhead`, milliseconds.

The forward is replaced by one that returns the same logits at once, so what is left is reading
rows, building the batch, choosing tokens, and writing the verdict.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

from draftwerk.model.batch.batch import Pages
from draftwerk.model.native.build import NativeUnavailable
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.sampler import NativeSampler
from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.model.step.backend import TORCH_BACKEND, Backend, LoadedModel
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.protocol.rounds import Draft, NewSequence, Proposal, Round, Row
from draftwerk.speculative.sampling.params import Sampling

ROWS, DRAFTED, KNOWN, VOCAB, BLOCK = 16, 4, 500, 49_152, 16
SAMPLINGS = {
    "greedy": Sampling(temperature=0.0),
    "temperature 0.8, top-p 0.95": Sampling(temperature=0.8, top_p=0.95, seed=1),
    "temperature 1": Sampling(seed=1),
    "greedy with penalties": Sampling(temperature=0.0, frequency_penalty=0.5),
}


def measure(backend: Backend, sampling: Sampling, rounds: int = 50) -> tuple[float, float]:
    """Return the median of a whole step, and of the part that choosing takes."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(ROWS * (DRAFTED + 1), VOCAB, generator=generator) * 3
    shape = (1, ROWS * 40, BLOCK, 1, 8)
    pages = Pages(torch.zeros(shape), torch.zeros(shape))
    steps: list[float] = []
    choices: list[float] = []

    def timed(logits: Tensor, asks: Sequence[SamplingRequest]) -> list[int]:
        begun = perf_counter()
        chosen = backend.choose(logits, asks)
        choices[-1] += perf_counter() - begun
        return chosen

    runner = TargetRunner(
        LoadedModel(
            forward=lambda batch, pages: logits,
            pages=pages,
            vocab_size=VOCAB,
            backend=replace(backend, choose=timed),
        )
    )
    runner.step(
        Proposal(
            Round(
                round_id=0, pipeline_slot=0, rows=tuple(row(n, sampling, True) for n in range(ROWS))
            ),
            NONE,
        )
    )
    for round_id in range(rounds):
        rows = tuple(row(n, sampling, False) for n in range(ROWS))
        proposal = Proposal(Round(round_id=round_id, pipeline_slot=0, rows=rows), DRAFTS)
        choices.append(0.0)
        begun = perf_counter()
        verdict = runner.step(proposal)
        steps.append(perf_counter() - begun)
        assert not any(decision.error for decision in verdict.decisions)
        for sequence in runner.cached_sequences.sequences.values():
            del sequence.tokens[KNOWN - 1 :]
    return median(steps) * 1e3, median(choices) * 1e3


def kits() -> dict[str, Backend]:
    """Return the kits that work here."""
    try:
        pool = Pool()
    except NativeUnavailable:
        return {"torch": TORCH_BACKEND}
    sampler = NativeSampler(pool)
    native = replace(TORCH_BACKEND, choose=sampler.choose_many, logprobs=sampler.logprobs)
    return {"torch": TORCH_BACKEND, "native": native}


def row(number: int, sampling: Sampling, opens: bool) -> Row:
    """Return a row: its first one opens 499 known tokens, the next brings one more."""
    blocks = tuple(range(number * 40, number * 40 + 40))
    if opens:
        new_sequence = NewSequence(tuple(range(KNOWN - 1)), 400, sampling)
        return Row(
            sequence_id=number,
            start=KNOWN - 2,
            stop=KNOWN - 1,
            samples=False,
            draft_max=0,
            blocks=blocks,
            new_sequence=new_sequence,
        )
    return Row(
        sequence_id=number,
        start=KNOWN - 1,
        stop=KNOWN,
        samples=True,
        draft_max=DRAFTED,
        blocks=blocks,
        new_token_ids=(7,),
    )


NONE = (Draft(),) * ROWS
DRAFTS = (Draft((1, 2, 3, 4), (-1, 0, 1, 2), ("x",) * 4),) * ROWS

if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"{ROWS} rows of {DRAFTED + 1} tokens, ms: whole step, of which choosing")
    for kit_name, backend in kits().items():
        for name, sampling in SAMPLINGS.items():
            step, choice = measure(backend, sampling)
            print(f"{kit_name:8}{name:30}{step:8.3f}{choice:8.3f}   besides {step - choice:.3f}")
