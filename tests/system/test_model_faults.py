"""Real models in engines whose processes end at any stage of a round: the texts of a cold server.

Hybrid families, on the native kernels and on torch, the twin, and some of Transformers' own:
prompts that part at any token, cut into chunks by small rounds, preempted in small pools, searched
with beams, drafted for rightly and wrongly, with one round under way or two, and kept in a store
for the next server.
"""

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from draftwerk.speculative.drafting import rationing
from draftwerk.speculative.request import Options
from draftwerk.speculative.sampling import Sampling
from tests.support import assistant_models, dflash_models, eagle_models
from tests.support.assistant_models import AssistantOracle
from tests.support.dflash_models import DFlashOracle
from tests.support.eagle_models import EagleOracle
from tests.support.mortal_model import BLOCK_SIZE, STAGES, SharedModel
from tests.support.mortal_server import Asked, Crowd, EachOf, run
from tests.support.mtp_models import MtpOracle
from tests.support.runners import require_kernels
from tests.support.simulated_child import Fate
from tests.support.tiny_models import TinyWords, save_tiny
from tests.support.undeclared_models import save_undeclared

HYBRIDS = (
    *("lfm2", "lfm2_moe", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next"),
    "granitemoehybrid",
)
DFLASH = "llama with a DFlash drafter"
DRAFTERS: dict[str, tuple[Callable[[Path], Any], str]] = {
    DFLASH: (DFlashOracle, dflash_models.HEAD),
    **{
        f"{family} with a DFlash drafter": (
            partial(DFlashOracle, family=family),
            dflash_models.HEAD,
        )
        for family in ("qwen3", "qwen3_5_text", "gpt_oss")
    },
    "qwen3 with a DFlash 2 drafter": (
        partial(DFlashOracle, family="qwen3", second=dflash_models.SECOND),
        dflash_models.HEAD,
    ),
    "llama with an EAGLE-3 head": (EagleOracle, eagle_models.HEAD),
    "qwen3_5_text with its MTP layer": (MtpOracle, ""),
    "gemma4_text with an assistant": (AssistantOracle, assistant_models.HEAD),
}
"""What saves a target with a drafter, and the drafter's folder in it."""
BACKENDS: dict[str, dict[str, Any]] = {
    "torch": {"attention": "reference"},
    "native": {"attention": "native"},
    "transformers": {"backend": "transformers"},
}
GRID = (
    *product(
        ("lfm2", "lfm2_moe", "qwen3_5_moe_text", "qwen3_next", "granitemoehybrid"), ("torch",)
    ),
    *product(("lfm2_moe", "qwen3_5_moe_text", "qwen3_next", "granitemoehybrid"), ("native",)),
    *product(("gpt_neox", "qwen2_moe", "vaultgemma"), ("transformers",)),
    *product(sorted(DRAFTERS.keys() - {DFLASH}), ("native",)),
    ("qwen3_5_text with a DFlash drafter", "torch"),
)
"""What `make test-grid` runs: backends, and kinds of layers, that the others have too."""
CASES = [
    *product(("lfm2", "qwen3_5_text", "gemma4_text"), ("native",)),
    ("qwen3_5_text", "torch"),
    (DFLASH, "native"),
    *(pytest.param(*each, marks=pytest.mark.grid) for each in GRID),
]
REQUESTS = 9
SHARED = 18
TOKENS = 14


def requests(rng: random.Random, vocab_size: int) -> list[Asked]:
    """Return requests whose prompts part from each other at any token."""
    shared = [rng.randrange(3, vocab_size) for _ in range(SHARED)]
    asked: list[Asked] = []
    for number in range(REQUESTS):
        own = [rng.randrange(3, vocab_size) for _ in range(rng.randint(1, 9))]
        prompt = (*shared[: 2 * number + 1], *own)
        width = 3 if number % 3 == 1 else 1
        sampling = Sampling(temperature=0.0 if width > 1 else number % 2, seed=number)
        choices = 2 if number % 3 == 2 else width
        options = Options(sampling=sampling, tokens_max=TOKENS, choices=choices, beam_width=width)
        asked.append(Asked(prompt, options))
    return asked


def save_drafted(folder: Path, name: str) -> str:
    """Save a target and what drafts for it; return what `--draft-head` is to name."""
    make, head = DRAFTERS[name]
    make(folder).make_right(0.03)
    return str(folder / head) if head else "mtp"


@pytest.mark.parametrize(("family", "backend"), CASES)
def test_no_fault_changes_a_text(
    family: str, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rationing, "PROBE_SHARE", 1e6)  # whatever a head takes
    if backend == "native":
        require_kernels()
    folder, how = tmp_path / "model", BACKENDS[backend]
    drafts = family in DRAFTERS
    if drafts:
        how = {**how, "draft_head": save_drafted(folder, family)}
    else:
        (save_undeclared if backend == "transformers" else save_tiny)(folder, family, seed=3)
    asked = requests(random.Random(1), TinyWords.vocab_size)
    cold = Crowd(SharedModel(folder, 200, 40, **how), Fate(random.Random(0), 0.0, 0))
    run(0, cold.answer_cold, asked)
    happened, ended = Counter[str](), Counter[int]()
    for seed in range(4) if backend == "native" else (1, 2):
        rng = random.Random(seed)
        fate = EachOf(rng, 1.0, 99) if seed < 2 else Fate(rng, 0.2, losses_max=6)
        store = tmp_path / "store" if seed >= 2 else None
        model = SharedModel(folder, 24, 12, **how)
        crowd = Crowd(
            model,
            fate,
            run_ahead=seed % 2 == 1,
            state_slots=12,
            round_tokens=13,
            store=store,
            predicts=not drafts,
        )
        run(seed, crowd.answer, asked)
        happened += crowd.happened
        ended += model.ended
    assert (happened["accepted of the head"] > 0) == drafts, happened
    for each in ("accepted", "rejected", "preemptions", "prefix_hits", "recoveries", "loaded"):
        assert happened[each] > 0, happened
    assert set(ended) == set(range(STAGES if cold.model.states.block_count else 4)), ended


@pytest.mark.parametrize(
    "family",
    [
        *(*HYBRIDS, "gemma4_text", DFLASH),
        *(
            pytest.param(each, marks=pytest.mark.grid)
            for each in sorted(DRAFTERS.keys() - {DFLASH})
        ),
    ],
)
def test_a_prompt_goes_on_from_what_each_other_left(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every block, and every token between: the longest first, so that all find some of it."""
    require_kernels()
    monkeypatch.setattr(rationing, "PROBE_SHARE", 1e6)
    how = BACKENDS["native"]
    if family in DRAFTERS:
        how = {**how, "draft_head": save_drafted(tmp_path, family)}
    else:
        save_tiny(tmp_path, family, seed=3)
    rng = random.Random(2)
    whole = [rng.randrange(3, TinyWords.vocab_size) for _ in range(6 * BLOCK_SIZE + 1)]
    options = Options(sampling=Sampling(temperature=1.0, seed=5), tokens_max=6)
    prompts = [(*whole[:at], 3 + at, 40 + at) for at in range(len(whole), 0, -1)]
    asked = [Asked(prompt, options) for prompt in prompts]
    model = SharedModel(tmp_path, 400, 60, **how)
    crowd = Crowd(model, Fate(random.Random(0), 0.0, 0), state_slots=60)
    run(0, crowd.answer_cold, asked)
    assert crowd.happened["prefix_hits"] == 0
    run(0, crowd.answer_in_turn, asked)
    again = sum((len(prompt) - 1) // BLOCK_SIZE * BLOCK_SIZE for prompt in prompts)
    first = sum(at // BLOCK_SIZE * BLOCK_SIZE for at in range(1, len(whole)))
    found = crowd.happened["prefix_hits"] - again  # each was asked twice
    assert 0 < found <= first
    assert found == first or model.states.block_count, "states are not kept at every block"
