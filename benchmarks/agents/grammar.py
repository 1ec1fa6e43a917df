"""What a grammar costs for each token: `python -m benchmarks.agents.grammar`, microseconds.

Under each grammar random texts are followed, and what a round does for a token is timed apart:
advancing to it, the bitmask of what may follow, the tokens that must, and masking the logits.
"""

import json
from collections.abc import Callable
from random import Random
from statistics import quantiles
from time import perf_counter
from typing import TypeVar

import numpy as np
import torch

from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.native.build import NativeUnavailable
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.sampler import NativeSampler
from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.model.step.backend import TORCH_BACKEND, Choose
from draftwerk.model.text.grammar import Grammars, Matcher, grammars_of
from draftwerk.speculative.sampling.params import Grammar, Sampling

T = TypeVar("T")
STOPS = (2,)
TOKENS = 2000
TEXT_MAX = 200
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "born": {"type": "string", "format": "date"},
        "height": {"type": "number", "minimum": 0, "maximum": 3},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}},
    },
    "required": ["name", "born"],
    "additionalProperties": False,
}
GRAMMARS = {
    "any object": Grammar("json_schema", '{"type":"object"}'),
    "person": Grammar("json_schema", json.dumps(PERSON)),
    "people": Grammar("json_schema", json.dumps({"type": "array", "items": PERSON})),
    "100 properties": Grammar(
        "json_schema",
        json.dumps({"type": "object", "properties": {f"field {n}": PERSON for n in range(100)}}),
    ),
    "regex": Grammar("regex", r"([a-z]+@[a-z]+\.(com|org)[,;] ){1,20}end"),
    "arithmetic": Grammar("lark", 'start: t (("+"|"-") t)*\nt: /[0-9]+/ | "(" start ")"\n'),
}


def main() -> None:
    """Print a line for each grammar, then what masking costs."""
    location = locate(None)
    vocab_size = read_info(location).vocab_size
    begun = perf_counter()
    grammars = grammars_of(location.directory, vocab_size, STOPS)
    assert grammars is not None
    print(f"tokens read in {(perf_counter() - begun) * 1e3:.0f} ms\n")
    print(f"{'':16}{'compile':>9}{'first':>7}{'advance':>9}{'mask p50':>10}{'p99':>7}{'jump':>8}")
    for name, grammar in GRAMMARS.items():
        print(f"{name:16}" + followed(grammars, grammar))
    masking(vocab_size)


def followed(grammars: Grammars, grammar: Grammar) -> str:
    """Return the costs of one grammar, in columns."""
    rng = Random(1)
    matcher, compiling = timed(lambda: grammars.matcher(grammar, STOPS))
    _, first = timed(matcher.allowed)
    advances: list[float] = []
    masks: list[float] = []
    jump_forward: list[float] = []
    while len(masks) < TOKENS:
        matcher = grammars.matcher(grammar, STOPS)
        for _ in range(TEXT_MAX):
            mask, took = timed(matcher.allowed)
            masks.append(took)
            jump_forward.append(timed(matcher.jump_forward)[1])
            token = chosen(rng, mask)
            if token in STOPS:
                break
            advances.append(timed(advancing(matcher, token))[1])
    median, last = quantiles(masks, n=100)[49], quantiles(masks, n=100)[98]
    spread = [quantiles(each, n=2)[0] for each in (advances, jump_forward)]
    return f"{compiling:9.0f}{first:7.0f}{spread[0]:9.1f}{median:10.1f}{last:7.0f}{spread[1]:8.1f}"


def advancing(matcher: Matcher, token: int) -> Callable[[], None]:
    return lambda: matcher.extend((token,))


def chosen(rng: Random, mask: np.ndarray) -> int:
    """Return an allowed token; ends are avoided where there is a choice."""
    allowed = np.unpackbits(mask.view(np.uint8), bitorder="little").nonzero()[0].tolist()
    others = [token for token in allowed if token not in STOPS]
    return rng.choice(others or allowed)


def masking(vocab_size: int) -> None:
    """Print what a mask adds to choosing, for 16 rows."""
    samplers: dict[str, Choose] = {"torch": TORCH_BACKEND.choose}
    try:
        samplers["native"] = NativeSampler(Pool(2)).choose_many
    except NativeUnavailable as error:
        print(f"no native sampler: {error}")
    logits = torch.randn(16, vocab_size, generator=torch.Generator().manual_seed(1)) * 3
    mask = np.random.default_rng(1).integers(-(2**31), 2**31, -(-vocab_size // 32), np.int32)
    sampling = Sampling(seed=1)
    for name, choose in samplers.items():
        costs: list[float] = []
        for allowed in (None, mask):
            asks = [SamplingRequest(row, 9, sampling, None, allowed) for row in range(16)]
            costs.append(min(timed(choosing(choose, logits, asks))[1] for _ in range(30)) / 16)
        print(f"\nchoosing, {name:7} {costs[0]:7.1f} a row; under a mask {costs[1]:7.1f}", end="")
    print()


def choosing(
    choose: Choose, logits: torch.Tensor, asks: list[SamplingRequest]
) -> Callable[[], list[int]]:
    return lambda: choose(logits, asks)


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return a result, and the microseconds it took."""
    begun = perf_counter()
    result = work()
    return result, (perf_counter() - begun) * 1e6


if __name__ == "__main__":
    main()
