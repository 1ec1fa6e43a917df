"""Every approximation gives one request one text, whatever else happens, on all instruction sets.

What the table refuses to serve together, or on a CPU, is skipped by the table's own words.
"""

import random
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from draftwerk.api.shared.config import Settings, load
from draftwerk.assembly.loading.model_infos import attention_window
from draftwerk.cache.kinds.window_table import NO_WINDOW_BLOCKS, WindowBlocks
from draftwerk.model.native.isa import VARIABLE
from draftwerk.model.native.library import library
from draftwerk.settings.approximations import APPROXIMATIONS, NAMES
from draftwerk.settings.setting_fields import ConfigError
from draftwerk.speculative.drafting import rationing
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.declared_segments import Blend
from draftwerk.speculative.sampling import Sampling
from tests.support.instruction_sets import TOGETHER
from tests.support.mortal_model import BLOCK_SIZE, SharedModel
from tests.support.mortal_server import Asked, Crowd, EachOf, run
from tests.support.runners import require_kernels
from tests.support.simulated_child import Fate
from tests.support.tiny_models import TinyWords, save_tiny

NAMED = [(row.name,) for row in APPROXIMATIONS]
SERVED = [name for name, row in NAMES.items() if not row.request_field]
CASES = [*NAMED, *combinations(SERVED, 2)]
FEW, MANY = 300, 2000
"""Blocks: two or three texts find room, or all."""
SMALLEST = {"window": "window:size=256,sinks=128"}
HAPPENED = ("accepted", "rejected", "preemptions", "prefix_hits", "recoveries")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    require_kernels()
    save_tiny(tmp_path, "llama", seed=3, head_dim=16)
    return tmp_path


def settings_of(names: tuple[str, ...]) -> Settings:
    """Return a server's settings; what the table refuses is skipped in its words."""
    asked = [SMALLEST.get(name, name) for name in names if not NAMES[name].request_field]
    try:
        return load({"approximate": asked, "device": "cpu"}, {})
    except ConfigError as error:
        pytest.skip(str(error))


def model_of(folder: Path, settings: Settings, is_small: bool) -> SharedModel:
    """Return a model with the approximations, with room for all requests or for few."""
    how: dict[str, Any] = {"kv_dtype": settings.kv_dtype, "dtype": "bf16", "attention": "native"}
    window = attention_window(settings)
    count, windows = FEW if is_small else MANY, NO_WINDOW_BLOCKS
    if window is not None:
        windows = WindowBlocks(count, window.size, 32, window.kept // BLOCK_SIZE)
    return SharedModel(folder, count, windows=windows, window=window, **how)


def words(count: int) -> list[int]:
    """Return some tokens, always the same ones of so many."""
    rng = random.Random(count)
    return [rng.randrange(3, TinyWords.vocab_size) for _ in range(count)]


def requests(names: tuple[str, ...]) -> list[Asked]:
    """Return requests that share passages, which are declared where a request asks for reuse."""
    opening, *passages, question = map(words, (21, 150, 131, 170, 9))
    blends = any(NAMES[name].request_field for name in names)
    asked: list[Asked] = []
    for number in range(6):
        prompt, spans = list(opening), []
        for at in range(number % 3, number % 3 + 2 + number % 2):
            passage = passages[at % 3]
            spans.append((len(prompt), len(prompt) + len(passage)))
            prompt += passage + words(number % 2)
        options = Options(
            sampling=Sampling(temperature=float(number % 2), seed=number),
            tokens_max=20,
            priority=-number,  # each one may take the place of those before it
            choices=1 + number % 2,
            ignore_eos=True,
            blend=Blend(tuple(spans), "hkvd", 0.15) if blends else None,
        )
        asked.append(Asked((*prompt, *question, number + 3), options))
    return asked


@pytest.fixture(params=TOGETHER)
def instruction_sets(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Return those of this CPU, the default last."""
    yield request.param
    library.cache_clear()


def cold_texts(folder: Path, settings: Settings, asked: list[Asked], isa: str) -> list[Any]:
    """Return the texts of requests that come one after the other and find nothing."""
    library.cache_clear()
    model = model_of(folder, settings, is_small=False)
    assert model.built.kernels.startswith(f"{isa},")
    for each in asked:
        each.texts = []
    run(0, Crowd(model, Fate(random.Random(0), 0.0, 0)).answer_cold, asked)
    return [each.texts for each in asked]


@pytest.mark.parametrize("names", CASES, ids=" and ".join)
def test_one_request_has_one_text(
    names: tuple[str, ...],
    folder: Path,
    instruction_sets: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rationing, "PROBE_SHARE", 1e6)  # whatever drafts take
    settings, asked = settings_of(names), requests(names)
    texts: list[Any] = []
    # Two together are computed by what either is computed by.
    between = 1 if len(names) == 1 else max(1, len(instruction_sets) - 1)
    for isa in instruction_sets[::between]:
        monkeypatch.setenv(VARIABLE, isa)
        texts.append(cold_texts(folder, settings, asked, isa))
    assert all(each == texts[-1] for each in texts)
    happened = Counter[str]()
    for seed in range(2):
        rng = random.Random(seed)
        fate = EachOf(rng, 1.0, 0, each=20) if not seed else Fate(rng, 0.1, losses_max=6)
        model = model_of(folder, settings, is_small=True)
        crowd = Crowd(model, fate, run_ahead=seed == 1)
        run(seed, crowd.answer, asked)
        happened += crowd.happened
    assert all(happened[each] > 0 for each in HAPPENED), happened
