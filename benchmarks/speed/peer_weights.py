"""The default model in the formats that llama.cpp reads, all of them the same weights.

`python -m benchmarks.speed.peer_weights DIRECTORY --quantize LLAMA_QUANTIZE` writes

    q4_1.gguf   the embedded file as it is
    bf16.gguf   the same numbers
    q8_0.gguf   made from bf16.gguf by llama.cpp's own tool
    q4_0.gguf   made from bf16.gguf by the same tool
"""

import argparse
import shutil
import subprocess
from pathlib import Path

from draftwerk.model.checkpoint.hub import embedded


def write(directory: Path, quantize: Path) -> None:
    """Write every format; what is there already is written again."""
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(embedded(), directory / "q4_1.gguf")
    # The embedded file is quantised already; its values in bf16 are the reference for all others.
    requantise = [str(quantize), "--allow-requantize"]
    for source, target, kind in (
        ("q4_1.gguf", "bf16.gguf", "BF16"),
        ("bf16.gguf", "q8_0.gguf", "Q8_0"),
        ("bf16.gguf", "q4_0.gguf", "Q4_0"),
    ):
        files = [str(directory / source), str(directory / target)]
        subprocess.run([*requantise, *files, kind], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--quantize", type=Path, required=True, help="llama.cpp's llama-quantize")
    given = parser.parse_args()
    write(given.directory, given.quantize)
