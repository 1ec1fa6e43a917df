"""The command line of `draftwerk quantise`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from draftwerk.api.cli.command_parser import Parser


def main(words: Sequence[str]) -> int:
    """Write a model in a type of GGUF's; returns the exit code."""
    given = vars(parser().parse_args(words))
    from draftwerk_tools.quantising.quantise import QuantiseOptions, quantise

    names = ("again", "measure", "method", "alpha", "texts", "text_tokens")
    options = QuantiseOptions(*(given[name] for name in names))
    return quantise(given["model"], given["kind"], given["output"], options)


def parser() -> Parser:
    """Return the parser of its words."""
    command = Parser(prog="draftwerk quantise")
    command.add_argument(
        "model", nargs="?", help="a directory, a GGUF file or a hub name (default: as of serve)"
    )
    command.add_argument("kind", metavar="TYPE", help="Q4_K_M, Q8_0, Q4_0, ... as llama.cpp has")
    command.add_argument(
        "-o", "--output", metavar="FILE.gguf", type=Path, required=True, help="what to write"
    )
    command.add_argument(
        "--again", action="store_true", help="also quantise what is quantised already"
    )
    command.add_argument(
        "--measure",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="tell what it costs in quality and gains in speed (default: on)",
    )
    command.add_argument(
        "--method",
        default="none",
        metavar="NAME",
        help="smoothquant, awq or gptq, by texts that the model writes; awq+gptq for both",
    )
    command.add_argument(
        "--alpha", type=float, metavar="A", help="of smoothquant and awq (default: the best)"
    )
    command.add_argument("--texts", type=int, metavar="N", help="that a method sees (default: 16)")
    command.add_argument("--text-tokens", type=int, metavar="N", help="of each text (default: 128)")
    return command
