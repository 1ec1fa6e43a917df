"""Logits of each family beside llama.cpp's, of the same file.

    python -m validation.llama_logits --peer FOLDER [--families NAME...]

Writes a tiny random GGUF of each family in F32, as llama.cpp's converter names and orders its
tensors, and computes a text with both. FOLDER is what `npm pack @node-llama-cpp/linux-x64` unpacks
to. Prints the mean KL divergence of each, and exits with 1 if one is above 1e-4.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.support.llama_library import LlamaModel
from draftwerk.model.checkpoint import gguf as gguf_file
from draftwerk.model.checkpoint.architectures import ARCHITECTURES
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.pool import Pool
from tests.model.native.models import part, random_pages, round_of
from tests.support.tiny_gguf import save_gguf
from tests.support.tiny_models import VOCAB

KL_MAX = 1e-4
LENGTH = 200
TIED = {"tie_word_embeddings": True}
CHANGES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text", "cohere", "cohere2"), TIED),
    "olmoe": {"num_key_value_heads": 4},
    "arcee": {"mlp_bias": False},
    "ernie4_5": {"use_bias": False},
    "starcoder2": {"sliding_window": None},
    "exaone4": {"sliding_window": None, "layer_types": ["full_attention"] * 4},
}
"""Where llama.cpp knows less of a family: biases, KV heads, and windows of small models."""


def our_logits(path: Path, tokens: list[int]) -> NDArray[np.float32]:
    """Return the logits of the native kernels in fp32."""
    model = load(str(path), torch.float32)
    forward = NativeForward(model.config, model.weights, "fp32", Pool())
    pages = random_pages(model.config, forward.page_dtype, width=forward.page_width)
    return forward(round_of([part(tokens, 0)]), pages).numpy()


def divergence(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> float:
    """Return the mean KL divergence of the distributions behind each token, in nats."""
    first, second = (torch.from_numpy(each).double().log_softmax(-1) for each in (theirs, ours))
    return float((first.exp() * (first - second)).sum(-1).mean())


def main(argv: Sequence[str] | None = None) -> int:
    known = [row.model_type for row in ARCHITECTURES if row.gguf]
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--peer", type=Path, required=True, help="llama.cpp's libraries")
    parser.add_argument("--families", nargs="+", choices=known, default=known)
    given = parser.parse_args(argv)
    gguf_file.write_tokenizer = lambda *_: None  # the files have none
    tokens = Random(1).choices(range(3, VOCAB), k=LENGTH)
    worst = 0.0
    with TemporaryDirectory() as folder:
        for family in given.families:
            changes = {"tie_word_embeddings": False, **CHANGES.get(family, {})}
            path = save_gguf(Path(folder) / f"{family}.gguf", family, "F32", **changes)
            try:
                peer = LlamaModel(given.peer, path, 1, LENGTH, "")
            except OSError:
                print(f"{family}: llama.cpp does not load it")
                worst = float("inf")
                continue
            found = divergence(our_logits(path, tokens), peer.logits(tokens))
            peer.close()
            worst = max(worst, found)
            print(f"{family}: {found:.2e}", flush=True)
    return worst > KL_MAX


if __name__ == "__main__":
    sys.exit(main())
