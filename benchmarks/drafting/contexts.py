"""What pricing drafts by their context gains, replayed without a model.

    python -m benchmarks.drafting.contexts [--texts 48] [--seeds 3]

Texts that partly repeat their prompts are decoded by two proposers: one knows T(tokens, context),
the other T(tokens) alone, as the controller did before. The device is the roofline of the default
model in int8 with rates like those of two cores with AVX-512, and attention at the given multiple
of it. Prints the device's milliseconds per token of both, and their ratio.
"""

import argparse
import random

from benchmarks.drafting.replay import Recording, Replay
from draftwerk.speculative.costs.roofline import MachineRates, Roofline
from draftwerk.speculative.costs.work import ModelShape, StepLoad
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.sampling.params import Sampling

SHAPE = ModelShape(
    layer_count=30,
    hidden_size=576,
    num_heads=9,
    num_kv_heads=3,
    head_size=64,
    ffn_size=1536,
    vocab_size=49152,
    weight_bytes=1.0625,
    kv_bytes=2.0,
)
RATES = MachineRates(flops_per_s=7e11, bytes_per_s=2.6e10, attention_flops_per_s=2.1e11)
ROOFLINE = Roofline(shape=SHAPE, rates=RATES)
SLOWER = 1.3
"""What a device takes of the roofline's time."""
LENGTHS = {"64": (64,), "512": (512,), "4096": (4096,), "64 and 4096": (64, 4096)}
ROWS = (1, 4, 16, 64)
OUTPUT = 96
EACH = 8
"""Texts for each row, so that most are decoded while all rows are taken."""
REPEAT_SHARE = (0.3, 0.6, 0.9)
"""How likely a text goes on as its prompt did, text by text."""


def recordings(rng: random.Random, lengths: tuple[int, ...], count: int) -> list[Recording]:
    """Return texts that follow their prompts for a while, then something else."""
    found: list[Recording] = []
    for number in range(count):
        prompt = [rng.randrange(40_000) for _ in range(lengths[number % len(lengths)])]
        share = REPEAT_SHARE[number // len(lengths) % len(REPEAT_SHARE)]
        at, output = rng.randrange(len(prompt) - 40), list[int]()
        for _ in range(OUTPUT):
            at += 1
            if rng.random() > share:
                output.append(rng.randrange(40_000))
                at = rng.randrange(len(prompt) - 40)
            else:
                output.append(prompt[at % len(prompt)])
        found.append(Recording(tuple(prompt), tuple(output), sampling=Sampling(temperature=0.0)))
    return found


def products(tokens: int) -> float:
    """Return the device's time without context."""
    return 1.0 + SLOWER * ROOFLINE.products_ms(StepLoad(tokens, tokens))


def context(load: StepLoad) -> float:
    """Return what the context adds."""
    return SLOWER * (ROOFLINE.attention_ms(load) + ROOFLINE.kv_ms(load))


def replayed(texts: list[Recording], rows: int, roofline: Roofline | None) -> float:
    """Return milliseconds per token, those of reading prompts apart."""
    measured = [(n, products(n)) for n in (1, 2, 4, 8, 16, 32, 64, 128)]
    proposer = Proposer(("ngram", "suffix"), measured, roofline=roofline)
    report = Replay(proposer, products, context_cost=context).run(texts, rows)
    return report.ms / report.tokens


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drafting.contexts")
    parser.add_argument("--texts", type=int, default=48, help="at least; eight for each row")
    parser.add_argument("--seeds", type=int, default=3, help="sets of texts")
    options = parser.parse_args()
    print(f"{'context':>12s} {'rows':>5s} {'T(tokens)':>10s} {'T(t, ctx)':>10s} {'ratio':>7s}")
    for name, lengths in LENGTHS.items():
        for rows in ROWS:
            before = after = 0.0
            for seed in range(options.seeds):
                texts = recordings(random.Random(seed), lengths, max(options.texts, EACH * rows))
                before += replayed(texts, rows, None) / options.seeds
                after += replayed(texts, rows, ROOFLINE) / options.seeds
            line = f"{name:>12s} {rows:5d} {before:10.3f} {after:10.3f} {before / after:7.3f}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
