"""`draftwerk quantise`: writes a GGUF of a chosen type, and measures what that costs and gains."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from draftwerk.api.cli.progress_line import ProgressLine
from draftwerk.model.checkpoint.files.byte_progress import size_text
from draftwerk.model.checkpoint.hub import Location, locate
from draftwerk.model.checkpoint.info import ModelInfo, read_info
from draftwerk.model.checkpoint.loader import Checkpoint, load
from draftwerk.model.checkpoint.stored_matrix import STORED
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.native.build import NativeUnavailable, obtain
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.servable import own_format
from draftwerk.model.native.stored import dequantised
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.settings.setting_fields import ConfigError
from draftwerk.speculative.protocol.frames import OnProgress
from draftwerk_tools.quantising.calibration import (
    CalibrationTexts,
    calibrated,
    prompts_of,
    texts_of,
)
from draftwerk_tools.quantising.gguf_output import check_output, write_quantised
from draftwerk_tools.quantising.methods.method_table import NONE, Method, method_named
from draftwerk_tools.quantising.sources import Source, open_source
from draftwerk_tools.trials.format_difference import (
    DistanceSummary,
    PagedModel,
    TextSample,
    difference,
    own_texts,
)

SAMPLED = 64
"""Tokens of each text."""
ROWS = (1, 4, 16, 64)
"""The rows of the steps that are timed."""


class QuantiseOptions(NamedTuple):
    """How a file is to be made."""

    again: bool = False
    """Whether of weights that are quantised already."""
    measures: bool = True
    method: str = NONE
    alpha: float | None = None
    texts: int | None = None
    """The number of texts that the method sees."""
    text_tokens: int | None = None


def quantise(source: str | None, kind: str, output: Path, given: QuantiseOptions) -> int:
    """Write a model in a type; returns the exit code. Raises ConfigError."""
    line = ProgressLine()
    try:
        check_output(kind, output)
        method = method_named(given.method, given.alpha)
        texts = texts_of(method, given.texts, given.text_tokens)
        location = locate(source, line.show)
        held = open_source(location)
        if held.kinds and not given.again:
            raise Refused(
                f"{held.name} is quantised already ({', '.join(held.kinds)}): take its unquantised "
                "weights, or --again if there are none"
            )
        write(location, held, kind, output, method, texts, line.show)
        before, after = read_info(location), read_info(locate(str(output), line.show))
        print(f"{output}: {_size(before)} -> {_size(after)}")
        print(f"serve it: draftwerk serve {output}")
        if given.measures:
            for each in measured(location, output, line.show):
                print(each)
    except Refused as refused:
        raise ConfigError(str(refused)) from None
    return 0


def write(
    location: Location,
    source: Source,
    kind: str,
    output: Path,
    method: Method | None,
    texts: CalibrationTexts,
    report: OnProgress,
) -> None:
    """Write a located model in a type, by a method if any; prints what that does not reach."""
    if method is None:
        write_quantised(source, kind, output, report)
        return
    layers = calibrated(location, source, kind, method, texts, report)
    for each in layers.left():
        print(each)
    write_quantised(source, kind, output, report, layers, f"{method}, {texts}")


def _size(info: ModelInfo) -> str:
    bits = 8 * info.stored_bytes / info.elements
    return f"{size_text(info.stored_bytes)}, {bits:.2f} bits a weight"


def measured(source: Location, output: Path, report: OnProgress) -> list[str]:
    """Return lines about a file's distance from its source, and both ones' steps."""
    try:
        obtain(progress=report)
    except NativeUnavailable as error:
        return [f"not measured, as the native kernels cannot run here: {error}"]
    text = TextTokenizer(source.directory)
    prompts = prompts_of(text)
    length = max(map(len, prompts)) + SAMPLED
    served, format_ = (
        own_format(info.stored_format, info.stored_kinds, "cpu", "auto", report)
        for info in (read_info(source), read_info(locate(str(output))))
    )
    pool = Pool()
    reference, candidate = (
        paged(loaded(path, dtype, report), dtype, pool, ROWS[-1], length)
        for path, dtype in ((str(source.directory), served), (str(output), format_))
    )
    report("sampling texts")
    texts = own_texts(reference, prompts, SAMPLED)
    report("comparing distributions")
    found = difference(reference, candidate, texts)
    report("timing steps")
    times = [
        (rows, reference.step_ms(rows, length - 1), candidate.step_ms(rows, length - 1))
        for rows in ROWS
    ]
    return [
        f"the source as it is served: {served}",
        _distance(found, texts),
        *(_speed(*each) for each in times),
    ]


def paged(
    model: Checkpoint,
    dtype: str,
    pool: Pool,
    rows: int,
    length: int,
    kv_dtype: str = "auto",
    text: Sequence[int] = (),
) -> PagedModel:
    """Return a loaded model that computes a few texts of a length.

    Formats of keys and values that learn do so from a `text`.
    """
    forward = NativeForward(model.config, model.weights, dtype, pool, kv_dtype, text=text)
    return PagedModel(model.config, forward, rows, length)


def loaded(source: str, dtype: str, report: OnProgress) -> Checkpoint:
    """Return a model as one of a dtype is made of it."""
    keeps = dtype == STORED
    return load(source, None, progress=report, keeps_blocks=keeps, dequantise=dequantised)


def _distance(found: DistanceSummary, texts: list[TextSample]) -> str:
    count = sum(len(text.tokens) - text.prompt_length for text in texts)
    return (
        f"KL to the source: {found.kl_mean:.4f} nats a token, 99 % below {found.kl_p99:.3f}; "
        f"the same best token after {100 * found.same:.1f} % of {count} tokens "
        f"({len(texts)} texts of its own)"
    )


def _speed(rows: int, before: float, after: float) -> str:
    rates = [1e3 * rows / ms for ms in (before, after)]
    return (
        f"{rows:2d} at once: {before:.1f} -> {after:.1f} ms a step, "
        f"{rates[0]:.0f} -> {rates[1]:.0f} tokens/s ({before / after:.2f} x)"
    )
