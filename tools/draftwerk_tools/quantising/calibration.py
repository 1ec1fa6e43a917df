"""Calibration of `draftwerk quantise --method`: texts that the model itself writes."""

from typing import NamedTuple

from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.hub import Location
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.native.build import NativeUnavailable, obtain
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.stored import dequantised
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.speculative.protocol.frames import OnProgress
from draftwerk_tools.quantising.calibrated_layers import CalibratedLayers
from draftwerk_tools.quantising.gguf_output import kinds_of
from draftwerk_tools.quantising.layer_runs import LayerRuns
from draftwerk_tools.quantising.methods.method_table import Method
from draftwerk_tools.quantising.mixes import MIXES
from draftwerk_tools.quantising.sources import Source
from draftwerk_tools.trials.format_difference import PagedModel, own_texts

TOPICS = (
    "Name three rivers of Europe and say where they flow.",
    "Write a function that reverses a list.",
    "Explain to a child why the sky is blue.",
    "Write a short story about a lost key.",
    "What is two plus two? Explain your answer.",
    "Give me a recipe for soup.",
    "Who was Ada Lovelace?",
    "List the planets from the sun outwards.",
    "Write a letter to a friend about the weather.",
    "What is the difference between a virus and a bacterium?",
    "Summarise the plot of Romeo and Juliet.",
    "How do I learn to play the guitar?",
    "Describe a city at night.",
    "Translate 'good morning' into five languages.",
    "Why do prices rise?",
    "Write a poem about the sea.",
)
SEED = 1
"""The seed of the texts; those by which files are measured have another."""


class CalibrationTexts(NamedTuple):
    """How many texts a method sees, and of how many tokens behind their prompts."""

    number: int = 16
    tokens: int = 128

    def __str__(self) -> str:
        return f"{self.number} texts of {self.tokens} tokens"


def texts_of(method: Method | None, count: int | None, tokens: int | None) -> CalibrationTexts:
    """Return the texts that a method sees, by what is given of them. Raises Refused."""
    given = {"number": count, "tokens": tokens}
    said = {name: value for name, value in given.items() if value is not None}
    if said and method is None:
        raise Refused("texts and text-tokens are what a --method sees, and there is none")
    found = CalibrationTexts(**said)
    if min(found) < 1:
        raise Refused(f"texts {found.number}, text-tokens {found.tokens}: a method sees some")
    return found


def prompts_of(text: TextTokenizer, count: int = len(TOPICS)) -> list[list[int]]:
    """Return the tokens of questions, which come again where more are wanted than there are."""
    asked = [prompt_of(text, topic) for topic in TOPICS[:count]]
    return [asked[each % len(asked)] for each in range(count)]


def prompt_of(text: TextTokenizer, topic: str) -> list[int]:
    """Return the tokens of a question."""
    if text.chat_template is None:
        return text.encode(topic)
    return text.encode_continuation(text.render_chat([{"role": "user", "content": topic}]))


def calibrated(
    location: Location,
    source: Source,
    kind: str,
    method: Method,
    texts: CalibrationTexts,
    report: OnProgress,
) -> CalibratedLayers:
    """Return a model's layers in the types of a mix, by a method. Raises Refused."""
    config = read_config(location.directory)
    try:
        obtain(progress=report)
    except NativeUnavailable as error:
        raise Refused(
            f"method {method.name}: the native kernels, by which the model writes its texts, "
            f"cannot run here: {error}"
        ) from error
    runs = LayerRuns(config, _texts(location, texts, report))
    return CalibratedLayers(source, config, kinds_of(MIXES[kind], source), method, runs)


def _texts(location: Location, wanted: CalibrationTexts, report: OnProgress) -> list[list[int]]:
    """Return texts that a model writes, prompts included."""
    prompts = prompts_of(TextTokenizer(location.directory), wanted.number)
    length = max(map(len, prompts)) + wanted.tokens
    loaded = load(str(location.directory), None, progress=report, dequantise=dequantised)
    forward = NativeForward(loaded.config, loaded.weights, "bf16", Pool(), "auto")
    model = PagedModel(loaded.config, forward, len(prompts), length)
    report(f"sampling {wanted}")
    return [each.tokens for each in own_texts(model, prompts, wanted.tokens, SEED)]
