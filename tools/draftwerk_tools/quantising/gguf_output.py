"""A model written as a GGUF of a chosen mix of types."""

from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import gguf
import numpy as np
from gguf import GGUFWriter
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from draftwerk.model.checkpoint.files.byte_progress import ByteProgress
from draftwerk.model.checkpoint.gguf_config import SAMPLING
from draftwerk.model.checkpoint.gguf_source import METHOD
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.speculative.protocol.frames import OnProgress
from draftwerk_tools.quantising.mixes import HEAD, MIXES, Mix, Place, kind_of
from draftwerk_tools.quantising.quantised_blocks import quantised
from draftwerk_tools.quantising.sources import Source, layer_number

NO_MATRICES = ("ffn_gate_inp", "_norm.", ".bias")
"""In names of tensors that are routers, or a vector of each head or expert."""
ROWS = 1024
"""The rows of a matrix that are quantised at once."""
Pack = Callable[[str, str, Callable[[int], None]], np.ndarray]
"""From a tensor's name, its type, and what is told of the bytes it is made of, to its data."""


def write_quantised(
    source: Source,
    mix_name: str,
    output: Path,
    progress: OnProgress,
    pack: Pack | None = None,
    method: str = "",
) -> None:
    """Write a model's file; it is there whole or not at all. Raises Refused.

    Its tensors' data are what `pack` makes of them, layer after layer, by the named method.
    """
    check_output(mix_name, output)

    def plain(name: str, kind: str, add: Callable[[int], None]) -> np.ndarray:
        return packed_rows(source.values(name), kind, add)

    try:
        working = Path(mkdtemp(prefix=f".{output.stem}-", dir=output.parent))
        written = working / output.name
        try:
            _write(source, MIXES[mix_name], written, progress, pack or plain, method)
            written.rename(output)
        finally:
            rmtree(working, ignore_errors=True)
    except OSError as error:
        raise Refused(f"{output}: {error.strerror}") from error


def check_output(mix_name: str, output: Path) -> None:
    """Raise Refused for an unknown type, or a file that cannot be written."""
    if mix_name not in MIXES:
        raise Refused(f"type {mix_name!r} is none of {', '.join(MIXES)}")
    if output.suffix != ".gguf":
        raise Refused(f"{output}: the name of a GGUF file ends in .gguf")
    if output.exists():
        raise Refused(f"{output}: it exists; remove it, or give another name")


def kinds_of(mix: Mix, source: Source) -> dict[str, str]:
    """Return the type of each tensor, by layer; vectors stay float32, and so do routers."""
    is_tied = HEAD not in source.shapes
    found: dict[str, str] = {}
    for name, shape in sorted(source.shapes.items(), key=lambda each: layer_number(each[0])):
        layer = max(layer_number(name), 0)
        place = Place(layer, source.layer_count, source.shares_keys, source.experts)
        columns, is_vector = shape[-1], len(shape) == 1
        is_kept = is_vector or any(each in name for each in NO_MATRICES)
        found[name] = "F32" if is_kept else kind_of(mix, name, columns, place, is_tied)
    return found


def _write(
    source: Source, mix: Mix, path: Path, progress: OnProgress, pack: Pack, method: str
) -> None:
    writer = GGUFWriter(path, source.architecture)
    try:
        source.write_fields(writer)
        _add_sampling(source.sampling, writer)
        writer.add_file_type(mix.file_type)
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        if method:
            writer.add_string(METHOD, method)
        kinds = kinds_of(mix, source)
        _add_tensors(source.shapes, kinds, writer)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        numbers = sum(prod(shape) for shape in source.shapes.values())
        told = ByteProgress(progress, f"quantising {source.name}", 4 * numbers)
        for name, kind in kinds.items():
            writer.write_tensor_data(pack(name, kind, told.add))
        told.finish()
    finally:
        writer.close()


def _add_sampling(sampling: Mapping[str, float], writer: GGUFWriter) -> None:
    """Write what a model recommends, but for what its metadata say already."""
    for name, value in sampling.items():
        key = SAMPLING[name]
        if key in writer.kv_data[0]:
            continue
        if isinstance(value, int):
            writer.add_int32(key, value)
        else:
            writer.add_float32(key, value)


def packed_rows(
    values: np.ndarray, kind: str, add: Callable[[int], None] = lambda _: None
) -> np.ndarray:
    """Return a tensor's data in a type; `add` is told of the bytes that it is made of."""
    if kind == "F32":
        add(values.nbytes)
        return values
    values = values.reshape(prod(values.shape[:-1]), -1)
    parts: list[np.ndarray] = []
    for at in range(0, len(values), ROWS):
        rows = values[at : at + ROWS]
        parts.append(quantised(rows, kind))
        add(rows.nbytes)
    return np.concatenate(parts)


def _add_tensors(
    shapes: Mapping[str, tuple[int, ...]], kinds: Mapping[str, str], writer: GGUFWriter
) -> None:
    for name, kind in kinds.items():
        shape, wanted = shapes[name], GGMLQuantizationType[kind]
        block, size = GGML_QUANT_SIZES[wanted]
        count = prod(shape) // block * size
        writer.add_tensor_info(name, shape, np.dtype(np.float32), count, wanted)
