"""What each type of a GGUF costs in quality, and what of that is the rounding of activations.

    python -m benchmarks.format_quality FOLDER [--model MODEL] [--kinds Q4_K_M Q8_0 ...]
                                        [--methods none awq gptq ...] [--off-grid]

writes the model into FOLDER in each type, by each method of `draftwerk quantise --method` (files
that are there are taken as they are), has it write texts, and compares next-token distributions
after their tokens, in nats of Kullback-Leibler divergence:

    served      the file as it is served, to the source in float32
    rounding    the same, to the file's own values in float32: what 8-bit activations cost

`int8` and `int4` among the types are what `--dtype` makes of the source. With `--off-grid` each
weight of the layers is first moved at random within a step of Q4_1: the default model's lie on such
a grid, which would favour that type.
"""

import argparse
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from draftwerk.assembly.calibration import TOPICS, CalibrationTexts, prompts_of
from draftwerk.assembly.quantise import paged, write
from draftwerk.model.checkpoint.hub import Location, locate
from draftwerk.model.checkpoint.loader import Checkpoint, load
from draftwerk.model.checkpoint.quantising.gguf_output import write_quantised
from draftwerk.model.checkpoint.quantising.methods.method_table import NONE, method_named
from draftwerk.model.checkpoint.quantising.mixes import EMBEDDING, HEAD
from draftwerk.model.checkpoint.quantising.searches import Floats
from draftwerk.model.checkpoint.quantising.sources import Source, open_source
from draftwerk.model.checkpoint.stored_matrix import STORED
from draftwerk.model.native.format_difference import (
    FormatDifference,
    PagedModel,
    difference,
    own_texts,
)
from draftwerk.model.native.learnt_keys import TEXT
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.stored import dequantised
from draftwerk.model.text.tokenizer import TextTokenizer

KINDS = (
    "Q8_0", "Q6_K", "Q5_K_M", "Q5_1", "Q5_0", "Q4_K_M", "Q4_K_S", "Q4_1", "Q4_0", "IQ4_NL",
    "IQ4_XS", "MXFP4", "Q3_K_M", "Q2_K",
)  # fmt: skip
LONGEST = 512
"""Tokens of a text, at most."""
SAMPLED = 128
QUANTISED_HERE = ("int8", "int4")


class FormatQuality:
    """A source's texts, and the files written of it."""

    def __init__(self, source: Location, folder: Path, pool: Pool) -> None:
        self.source = source
        self.folder = folder
        self.pool = pool
        self.tokenizer = TextTokenizer(source.directory)
        self.exact = self.model(str(source.directory), "fp32")
        prompts = prompts_of(self.tokenizer)
        self.texts = own_texts(self.exact, prompts, SAMPLED)

    def model(self, source: str, dtype: str, kv_dtype: str = "auto") -> PagedModel:
        """Return a model of that dtype, over the bf16 or the exact values of its file."""
        loaded: Checkpoint = load(
            source, None, keeps_blocks=dtype == STORED, dequantise=dequantised
        )
        text = self.tokenizer.encode(TEXT)
        return paged(loaded, dtype, self.pool, len(TOPICS), LONGEST, kv_dtype, text)

    def file(self, kind: str, method: str = NONE) -> Path:
        """Return the source's file of a type by a method, written if it is not there."""
        by = "" if method == NONE else f"-{method}"
        path = self.folder / f"{self.source.name}-{kind}{by}.gguf"
        if not path.exists():
            source, named = open_source(self.source), method_named(method)
            write(self.source, source, kind, path, named, CalibrationTexts(), lambda _: None)
        return path

    def values_file(self, path: Path) -> Path:
        """Return the values of a type's file in float32, as a file."""
        values = path.with_name(f"{path.stem}-F32.gguf")
        if not values.exists():
            write_quantised(open_source(locate(str(path))), "F32", values, lambda _: None)
        return values

    def line(self, kind: str, method: str) -> str:
        """Return a line of the table."""
        if kind in QUANTISED_HERE:
            served = self.model(str(self.source.directory), kind)
            return f"{kind:19s} {'':6s} {_numbers(difference(self.exact, served, self.texts))}"
        path = self.file(kind, method)
        values = self.values_file(path)
        served, own = self.model(str(path), STORED), self.model(str(values), "fp32")
        whole = difference(self.exact, served, self.texts)
        rounding = difference(own, served, self.texts)
        size = path.stat().st_size / 1e6
        return f"{kind:7s} {method:11s} {size:6.0f} {_numbers(whole)} {_numbers(rounding)}"


def off_grid(source: Source) -> Source:
    """Return a source whose layers' weights are moved within a step of Q4_1."""

    def values(name: str) -> Floats:
        found = source.values(name)
        if found.ndim == 1 or name in (HEAD, EMBEDDING):
            return found
        blocks = found.reshape(-1, 32)
        steps = np.ptp(blocks, axis=1, keepdims=True) / 15
        moves = np.random.default_rng(zlib.crc32(name.encode())).random(blocks.shape) - 0.5
        return (blocks + moves * steps).astype(np.float32).reshape(found.shape)

    return source._replace(values=values, kinds=())


def source_of(model: str | None, folder: Path, is_off_grid: bool) -> Location:
    """Return a model, or what is written of it in bf16 off its grid."""
    source = locate(model)
    if not is_off_grid:
        return source
    path = folder / f"{source.name}-off-grid.gguf"
    if not path.exists():
        write_quantised(off_grid(open_source(source)), "BF16", path, lambda _: None)
    return locate(str(path))


def _numbers(found: FormatDifference) -> str:
    return f" {found.kl_mean:8.5f} {found.kl_p99:8.4f} {100 * found.same_best:6.1f} %"


def lines(quality: FormatQuality, kinds: Sequence[str], methods: Sequence[str]) -> Iterator[str]:
    """Yield the table."""
    count = sum(len(text.tokens) - text.prompt_length for text in quality.texts)
    yield f"{quality.source.name}, {len(quality.texts)} texts of its own, {count} tokens"
    yield f"{'':28s}served{'':22s}rounding"
    yield f"type    method          MB{2 * '      mean    99 %     best'}"
    for kind in kinds:
        for method in methods[:1] if kind in QUANTISED_HERE else methods:
            yield quality.line(kind, method)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default=None)
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--methods", nargs="+", default=[NONE])
    parser.add_argument("--off-grid", action="store_true", help="move weights off a Q4_1 grid")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    source = source_of(given.model, given.folder, given.off_grid)
    quality = FormatQuality(source, given.folder, Pool())
    for line in lines(quality, given.kinds, given.methods):
        print(line, flush=True)


if __name__ == "__main__":
    main()
