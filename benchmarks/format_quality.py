"""What each weight format costs in quality.

Run as `python -m benchmarks.format_quality TEXT_FILE [MODEL]`.

Compares next-token distributions on a text with those of the float32 format: Kullback-Leibler
divergence in nats, perplexity, and how often the most likely token is the same.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from benchmarks.kernels import one_row, pages_for
from draftwerk.model.checkpoint.loader import Checkpoint, load
from draftwerk.model.native.forward import FORMATS, NativeForward
from draftwerk.model.native.pool import Pool

WINDOW = 512


def windows_logprobs(
    model: Checkpoint, dtype: str, tokens: Tensor, pool: Pool, kv_dtype: str = "auto"
) -> Iterator[Tensor]:
    """Yield log-probabilities [window, vocab] of each window of the text, each from its start."""
    native = NativeForward(model.config, model.weights, dtype, pool, kv_dtype)
    pages = pages_for(model.config, native)
    for window in tokens.split(WINDOW):
        batch = one_row(len(window), len(window), len(window))
        batch.tokens = window.contiguous()
        yield native(batch, pages).log_softmax(-1)


def compare(model: Checkpoint, dtype: str, kv_dtype: str, tokens: Tensor, pool: Pool) -> str:
    """Return a table line for one format of weights and one of keys and values."""
    divergences, agreements, losses = [], [], []
    windows = tokens.split(WINDOW)
    exact, ours = (
        windows_logprobs(model, "fp32", tokens, pool),
        windows_logprobs(model, dtype, tokens, pool, kv_dtype),
    )
    for window, reference, logprobs in zip(windows, exact, ours, strict=True):
        divergences.append((reference.exp() * (reference - logprobs)).sum(-1))
        agreements.append((reference.argmax(-1) == logprobs.argmax(-1)).float())
        losses.append(-logprobs[:-1].gather(1, window[1:, None].long())[:, 0])
    divergence = torch.cat(divergences)
    return (
        f"{dtype:7s} {kv_dtype:5s} {float(divergence.mean()):9.5f}"
        f" {float(divergence.quantile(0.99)):9.5f}"
        f" {float(torch.cat(losses).mean().exp()):10.3f}"
        f" {float(torch.cat(agreements).mean()) * 100:9.2f} %"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare weight formats on a text.")
    parser.add_argument("text", type=Path)
    parser.add_argument("model", nargs="?", default=None)
    parser.add_argument("--tokens", type=int, default=3072)
    arguments = parser.parse_args()
    model = load(arguments.model, None)
    tokenizer = Tokenizer.from_file(str(model.directory / "tokenizer.json"))
    encoded = tokenizer.encode(arguments.text.read_text()).ids[: arguments.tokens]
    tokens = torch.tensor(encoded, dtype=torch.int32)
    print(f"{len(tokens)} tokens in windows of {WINDOW}")
    print("weights KV      KL mean     KL 99%  perplexity  same argmax")
    for dtype in FORMATS:
        for kv_dtype in ("auto", "int8"):
            print(compare(model, dtype, kv_dtype, tokens, Pool()), flush=True)


if __name__ == "__main__":
    main()
