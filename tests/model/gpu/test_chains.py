"""A draft model that guesses on by itself on the device guesses what it did token by token."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from draftwerk.model.checkpoint.loader import load
from draftwerk.model.draft_head.chains import LENGTH_MAX, ChainDrafter, Wanted
from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.model.step.draft_runner import DraftRunner
from draftwerk.speculative.rounds import Round, Row
from draftwerk.speculative.sampling import Sampling
from tests.model.gpu.support.device import DEVICE
from tests.model.gpu.support.recorder import Recorder
from tests.support.model_driver import Driver, generate
from tests.support.rounds import first_row, make_round
from tests.support.runners import FP32, make_runner
from tests.support.tiny_models import VOCAB

pytest.importorskip("triton", reason="Triton is not installed")

from draftwerk.model.batch.batch import Facts
from draftwerk.model.gpu.build import GpuSettings, gpu_parts
from draftwerk.model.gpu.chains import BROKEN, GpuChains, State, follow
from draftwerk.model.gpu.forward import GpuForward

BLOCK_COUNT, BLOCK_SIZE, CONTEXT_MAX = 64, 4, 48
SAMPLINGS = [
    Sampling(temperature=0.0),
    Sampling(temperature=0.7, seed=1),
    Sampling(temperature=1.3, seed=2**63 + 5, branch=3),
    Sampling(temperature=0.9, min_p=0.05, seed=7),
]
LEFT_TO_THE_HOST = [
    Sampling(temperature=0.8, top_p=0.9, seed=2),
    Sampling(temperature=0.0, frequency_penalty=0.3),
]


class Counted:
    """Chains that also count the requested ones."""

    def __init__(self, chains: ChainDrafter) -> None:
        self.chains = chains
        self.count = 0

    def serves(self, wanted: Wanted) -> bool:
        return self.chains.serves(wanted)

    def begin(self, logits: Tensor, wanted: Sequence[Wanted]) -> Callable[[], list[list[int]]]:
        self.count += len(wanted)
        return self.chains.begin(logits, wanted)


def drafters(
    directory: Path, recorder: Recorder | None = None, exact: bool = False
) -> tuple[DraftRunner, DraftRunner]:
    """Return a drafter that guesses token by token, and one that has chains; pages of their own."""
    settings = GpuSettings("fp32", "triton", exact, BLOCK_COUNT, BLOCK_SIZE)
    model = load(str(directory), FP32, DEVICE)
    plain, parts = (gpu_parts(model, settings, None)[0] for _ in range(2))
    assert isinstance(parts.forward, GpuForward)
    chains = GpuChains(parts.forward, parts.pages, CONTEXT_MAX, (1, 2, 4), not exact, recorder)
    return DraftRunner(plain), DraftRunner(replace(parts, chains=Counted(chains)))


def opened(rng: Random, samplings: Sequence[Sampling], rooms: Sequence[int]) -> Round:
    """Return a round that opens a sequence of each distribution, with room for so many guesses."""
    rows: list[Row] = []
    blocks = list(range(BLOCK_COUNT))
    rng.shuffle(blocks)
    for index, (sampling, room) in enumerate(zip(samplings, rooms, strict=True)):
        text = [rng.randrange(VOCAB) for _ in range(rng.randint(1, 11))]
        table = tuple(blocks.pop() for _ in range(-(-(len(text) + room) // BLOCK_SIZE)))
        rows.append(first_row(text, sampling, sequence_id=index, draft_max=room, blocks=table))
    return make_round(*rows)


def known(drafter: DraftRunner) -> list[tuple[int, int, list[int]]]:
    return [(id_, one.valid, one.guesses) for id_, one in drafter.readings.items()]


@pytest.mark.parametrize(
    ("graphs", "exact"),
    [
        *(pytest.param(graphs, False, marks=pytest.mark.grid) for graphs in (False, True)),
        (True, True),
    ],
)
def test_chains_are_the_guesses_that_were_made_token_by_token(graphs, exact, directory):
    """Rows of all distributions and lengths, more of them than a graph has rows, in shuffled
    blocks."""
    recorder = Recorder() if graphs else None
    plain, whole = drafters(directory, recorder, exact)
    rng = Random(3)
    samplings = [*SAMPLINGS, *LEFT_TO_THE_HOST, *SAMPLINGS[1:], SAMPLINGS[2]]
    rooms = [8, 3, 1, 12, 8, 2, 5, 2, 8, 0]
    round_ = opened(rng, samplings, rooms)
    expected = plain.propose(round_)
    assert whole.propose(round_) == expected
    assert [len(draft.tokens) for draft in expected] == [min(room, 8) for room in rooms]
    assert known(whole) == known(plain)
    assert isinstance(whole.parts.chains, Counted)
    assert whole.parts.chains.count == 7
    if recorder is not None:
        # Two groups of four and three rows, each as long as its longest chain.
        assert recorder.replays == 7 + 7


def test_a_stop_token_ends_a_chain_and_what_it_has_read(directory):
    plain, whole = drafters(directory, Recorder())
    sampling = SAMPLINGS[1]
    (free,) = plain.propose(opened(Random(5), [sampling], [8]))
    place = next(at for at in range(2, 8) if free.tokens[at] not in free.tokens[:at])
    ends = Sampling(temperature=0.7, seed=1, stop_token_ids=(free.tokens[place],))
    for drafter in (plain, whole):
        drafter.propose(make_round(finished_ids=(0,)))
    round_ = opened(Random(5), [ends], [8])
    (found,) = whole.propose(round_)
    assert found.tokens == free.tokens[: place + 1]
    assert (found,) == plain.propose(round_)
    assert known(whole) == known(plain)
    assert len(whole.readings[0].guesses) == place


def test_a_text_decoded_with_chains_is_the_text_without(directory):
    """A draft model that is the target is right for as long as its cache is."""
    plain, whole = drafters(directory, Recorder())
    runner, rng, samplings = make_runner(directory, BLOCK_COUNT), Random(1), SAMPLINGS[2:]
    prompts = [[rng.randrange(VOCAB) for _ in range(rng.randint(1, 12))] for _ in samplings]
    texts = [
        generate(runner, prompt, sampling, 12)
        for prompt, sampling in zip(prompts, samplings, strict=True)
    ]
    paths: list[list[list[int]]] = []
    for drafter in (plain, whole):
        driver = Driver(runner, Random(2), drafter=drafter, chunk_max=9)
        lives = [
            driver.add(index, prompt, sampling, 12)
            for index, (prompt, sampling) in enumerate(zip(prompts, samplings, strict=True))
        ]
        driver.run()
        assert [live.output for live in lives] == texts
        paths.append([[len(one.path) for one in live.decisions] for live in lives])
    assert paths[0] == paths[1]
    assert sum(map(sum, paths[1])) > 15


def test_a_chain_ends_where_the_logits_are_no_numbers(directory):
    _, whole = drafters(directory, None)
    chains = whole.parts.chains
    assert chains is not None
    logits = torch.full((2, VOCAB), float("nan"), device=DEVICE)
    logits[1] = 0.0
    wanted = [Wanted(SamplingRequest(row, 4, SAMPLINGS[0]), (row, row + 2), 3) for row in (0, 1)]
    broken, sound = chains.begin(logits, wanted)()
    assert broken == []
    assert len(sound) == 3 and sound[0] == 0


def test_what_the_buffers_do_not_hold_is_not_served(directory):
    _, whole = drafters(directory, None)
    chains = whole.parts.chains
    assert chains is not None
    room = CONTEXT_MAX
    assert chains.serves(Wanted(SamplingRequest(0, room - 3, SAMPLINGS[0]), (), 3))
    assert not chains.serves(Wanted(SamplingRequest(0, room + 2, SAMPLINGS[0]), (), 3))
    assert not chains.serves(Wanted(SamplingRequest(0, 4, SAMPLINGS[0]), (), LENGTH_MAX + 1))
    assert not chains.serves(Wanted(SamplingRequest(0, 4, LEFT_TO_THE_HOST[0]), (), 3))


def plain_follow(state: Any, chosen: torch.Tensor, vocab: int, page: int) -> None:
    """The twin of `follow`, row by row."""
    batch, keys = state.batch, state.asked.keys
    for row in range(state.rows):
        count, token, position = int(state.left[row]), int(chosen[row]), int(keys[row, 2])
        sound = 0 <= token < vocab
        if count > 0:
            state.found[row, count - 1] = token if sound else BROKEN
        goes_on = count > 1 and sound
        slot = int(state.tables[row, position // page]) * page + position % page if goes_on else -1
        batch.tokens[row] = token if goes_on else 0
        batch.positions[row] = position if goes_on else 0
        batch.slots[row] = slot
        batch.kv_lengths[row] = position + 1 if goes_on else 0
        state.left[row] = count - 1 if goes_on else 0
        keys[row, 2] = position + 1


@pytest.mark.parametrize("rows", [1, 5, 8])
def test_following_agrees_with_its_twin(rows: int):
    """Rows that are done, at their last token, on their way, and at what is no token."""
    rng, width = Random(rows), 6
    wanted = [
        Wanted(
            SamplingRequest(row, rng.randrange(14), Sampling(temperature=0.5, seed=row)),
            tuple(rng.sample(range(100), width)),
            rng.randint(1, 3),
        )
        for row in range(rows)
    ]
    states = [State(rows, width, DEVICE, Facts(1, 24, True)) for _ in range(2)]
    for state in states:
        state.send(wanted)
    for _ in range(4):
        told = [rng.choice([rng.randrange(VOCAB), rng.randrange(VOCAB), 2**31 - 1])] * rows
        chosen = torch.tensor(told, dtype=torch.int32, device=DEVICE)
        for state, step in zip(states, (follow, plain_follow), strict=True):
            step(state, chosen, VOCAB, BLOCK_SIZE)
        ours, theirs = states
        for name in ("tokens", "positions", "slots", "kv_lengths"):
            assert torch.equal(getattr(ours.batch, name), getattr(theirs.batch, name))
        assert torch.equal(ours.sent, theirs.sent) and torch.equal(ours.found, theirs.found)
