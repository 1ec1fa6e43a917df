"""Weights, and keys and values, in fewer bits: distance from float32, size, and tokens a second.

The model is the default one with its weights moved off the grid of its file, which would favour
that file's type (benchmarks.format_quality). *KL* and *same best* compare next tokens with those of
float32, over texts of the model's own. Tokens a second are those of the engine without drafts,
behind prompts of 32 tokens. Files of each form are written into `--folder` unless they are there.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from benchmarks.files import OurEngine
from benchmarks.format_quality import FormatQuality, source_of
from benchmarks.support.bench import ResultTable, in_turn, middle, parser, run, show, user_columns
from benchmarks.support.engine import engine
from draftwerk.api.core.config import Settings
from draftwerk.model.checkpoint.quantising.methods.method_table import NONE
from draftwerk.model.checkpoint.stored_matrix import STORED
from draftwerk.model.native.format_difference import FormatDifference, difference
from draftwerk.model.native.pool import Pool

SOURCE = "BF16"
FOLDER = Path(".peers/bit_widths")


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


def path_of(quality: FormatQuality, form: Form) -> Path:
    """Return a form's file."""
    if form.kind == SOURCE:
        return quality.folder / f"{quality.source.name}.gguf"
    return quality.file(form.kind, form.method)


def distance(quality: FormatQuality, form: Form) -> FormatDifference:
    """Return how far a form's next tokens are from those of float32."""
    dtype = "bf16" if form.kind == SOURCE else STORED
    served = quality.model(str(path_of(quality, form)), dtype, form.kv_dtype)
    return difference(quality.exact, served, quality.texts)


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
    given = options.parse_args(argv)
    given.folder.mkdir(parents=True, exist_ok=True)
    quality = FormatQuality(source_of(None, given.folder, is_off_grid=True), given.folder, Pool())
    paths = {form: path_of(quality, form) for form in FORMS}
    distances = {form: distance(quality, form) for form in FORMS}
    measured = run(rates, paths, given)
    found = ResultTable(
        ["weights", "method", "KV", "MB", "KL", "same best", *user_columns(given.users)]
    )
    for form in FORMS:
        paces = [middle(each[users] for each in measured[form]) for users in given.users]
        kl, best = distances[form].kl_mean, distances[form].same_best
        size = round(paths[form].stat().st_size / 1e6)
        found.add(form.kind, form.method, form.kv, size, kl, f"{100 * best:.1f} %", *paces)
    return found


if __name__ == "__main__":
    show(table)
