"""Weights, and keys and values, in fewer bits: distance from float32, size, and tokens a second.

The model is the default one. Each weight of its layers is first moved at random within a step of
Q4_1: they lie on such a grid, which would favour that type. *KL* and *same best* compare next
tokens with those of float32, over texts of the model's own. Tokens a second are those of the engine
without drafts, behind prompts of 32 tokens. Files of each form are written into `--folder` unless
they are there.
`--kinds IQ4_NL Q4_0` measures these types in place of the forms that the table has.
"""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from benchmarks.files import OurEngine
from benchmarks.support.bench import ResultTable, in_turn, middle, parser, run, show, user_columns
from benchmarks.support.engine import engine
from draftwerk.api.shared.config import Settings
from draftwerk.model.checkpoint.hub import Location, locate
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.stored_matrix import STORED
from draftwerk.model.native.learnt_keys import TEXT
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.stored import dequantised
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk_tools.quantising.calibration import TOPICS, CalibrationTexts, prompts_of
from draftwerk_tools.quantising.gguf_output import write_quantised
from draftwerk_tools.quantising.methods.method_table import NONE, method_named
from draftwerk_tools.quantising.mixes import EMBEDDING, HEAD
from draftwerk_tools.quantising.quantise import paged, write
from draftwerk_tools.quantising.searches import Floats
from draftwerk_tools.quantising.sources import Source, open_source
from draftwerk_tools.trials.format_difference import (
    DistanceSummary,
    PagedModel,
    difference,
    own_texts,
)

SOURCE = "BF16"
FOLDER = Path(".peers/bit_widths")
LONGEST = 512
"""Tokens of a text, at most."""
SAMPLED = 128


class Form(NamedTuple):
    """Weights by a type and a method, and the format of keys and values."""

    kind: str
    method: str = NONE
    kv_dtype: Literal["auto", "int8", "int4"] = "auto"

    @property
    def kv(self) -> str:
        """Keys and values, as the table names them."""
        return "bf16" if self.kv_dtype == "auto" else self.kv_dtype


FORMS = (
    Form(SOURCE),
    Form(SOURCE, kv_dtype="int8"),
    Form("Q8_0"),
    Form("Q8_0", "smoothquant"),
    Form("Q8_0", kv_dtype="int8"),
    Form("Q8_0", kv_dtype="int4"),
    Form("Q4_1"),
    Form("Q4_K_M"),
    Form("Q4_0"),
    Form("Q4_0", "awq"),
    Form("Q4_0", "gptq"),
    Form("Q4_0", "awq+gptq"),
)


class FormatQuality:
    """A source's texts, and the files written of it."""

    def __init__(self, source: Location, folder: Path, pool: Pool) -> None:
        self.source = source
        self.folder = folder
        self.pool = pool
        self.tokenizer = TextTokenizer(source.directory)
        self.exact = self.model(str(source.directory), "fp32")
        self.texts = own_texts(self.exact, prompts_of(self.tokenizer), SAMPLED)

    def model(self, source: str, dtype: str, kv_dtype: str = "auto") -> PagedModel:
        """Return a model of that dtype, over the bf16 or the exact values of its file."""
        loaded = load(source, None, keeps_blocks=dtype == STORED, dequantise=dequantised)
        text = self.tokenizer.encode(TEXT)
        return paged(loaded, dtype, self.pool, len(TOPICS), LONGEST, kv_dtype, text)

    def file(self, form: Form) -> Path:
        """Return a form's file, written if it is not there."""
        if form.kind == SOURCE:
            return self.folder / f"{self.source.name}.gguf"
        by = "" if form.method == NONE else f"-{form.method}"
        path = self.folder / f"{self.source.name}-{form.kind}{by}.gguf"
        if not path.exists():
            source, named = open_source(self.source), method_named(form.method)
            write(self.source, source, form.kind, path, named, CalibrationTexts(), lambda _: None)
        return path

    def distance(self, form: Form) -> DistanceSummary:
        """Return how far a form's next tokens are from those of float32."""
        dtype = "bf16" if form.kind == SOURCE else STORED
        served = self.model(str(self.file(form)), dtype, form.kv_dtype)
        return difference(self.exact, served, self.texts)


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


def source_in(folder: Path) -> Location:
    """Return the default model off its grid in bf16, written if it is not there."""
    source = locate(None)
    path = folder / f"{source.name}-off-grid.gguf"
    if not path.exists():
        write_quantised(off_grid(open_source(source)), SOURCE, path, lambda _: None)
    return locate(str(path))


async def rates(paths: dict[Form, Path], given: Any) -> dict[Form, list[dict[int, float]]]:
    """Return each form's tokens a second by users, of each repeat."""

    async def measure(form: Form, _: int) -> dict[int, float]:
        settings = Settings(
            model=str(paths[form]),
            speculate="off",
            kv_dtype=form.kv_dtype,
            prefer="throughput",
        )
        async with engine(settings) as running:
            ours = OurEngine(running)
            await ours.decode(1, given.tokens)
            return {users: await ours.decode(users, given.tokens) for users in given.users}

    return await in_turn(tuple(paths), given.repeats, measure)


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; a row for each form."""
    options = parser(__doc__, users=[1, 4, 16, 64], tokens=64, repeats=3)
    options.add_argument("--folder", type=Path, default=FOLDER, help="where the files are")
    options.add_argument("--kinds", nargs="+", help="types, in place of the table's forms")
    given = options.parse_args(argv)
    given.folder.mkdir(parents=True, exist_ok=True)
    quality = FormatQuality(source_in(given.folder), given.folder, Pool())
    forms = [Form(kind) for kind in given.kinds] if given.kinds else FORMS
    paths = {form: quality.file(form) for form in forms}
    distances = {form: quality.distance(form) for form in forms}
    measured = run(rates, paths, given)
    found = ResultTable(
        ["weights", "method", "KV", "MB", "KL", "same best", *user_columns(given.users)]
    )
    for form in forms:
        paces = [middle(each[users] for each in measured[form]) for users in given.users]
        kl, best = distances[form].kl_mean, distances[form].same
        size = round(paths[form].stat().st_size / 1e6)
        found.add(form.kind, form.method, form.kv, size, kl, f"{100 * best:.1f} %", *paces)
    return found


if __name__ == "__main__":
    show(table)
