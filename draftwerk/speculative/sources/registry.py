"""The table of draft sources: a new one is a file that guesses, and a row here.

Settings, `--help`, requests, origins of tokens, the proposer, acceptance statistics, the colours of
`draftwerk chat` and the page's legend all follow the table.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from draftwerk.speculative.rounds import NewSequence
from draftwerk.speculative.sources.draft_head import HeadSource
from draftwerk.speculative.sources.grammar import GrammarSource
from draftwerk.speculative.sources.ngram import NgramSource
from draftwerk.speculative.sources.ngram_index import SequenceText
from draftwerk.speculative.sources.prediction import PredictionSource
from draftwerk.speculative.sources.recycle import RecycleSource
from draftwerk.speculative.sources.sequence_noise import SequenceNoise
from draftwerk.speculative.sources.store import Memory, StoreSource
from draftwerk.speculative.sources.suffix import SuffixSource
from draftwerk.speculative.sources.tree import DraftSource


class SourceInputs(NamedTuple):
    """The inputs of a source of a new sequence."""

    new_sequence: NewSequence
    text: SequenceText
    noise: SequenceNoise
    memory: Memory
    """The memory of the sequence's name space."""
    number: int = 0
    """The source's row in the table."""


class Colour(NamedTuple):
    """How a source's tokens are marked."""

    light: str
    """On the page."""
    dark: str
    sgr: int
    """In a terminal: the code of Select Graphic Rendition."""


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """All that the rest of the program knows of a draft source."""

    name: str
    """In settings, requests, metrics and origins of tokens."""
    meaning: str
    """A line on what it drafts: in the reference and in the page's legend."""
    priors: tuple[float, ...]
    """Acceptance to start with, by bucket."""
    colour: Colour
    make: Callable[[SourceInputs], DraftSource | None]
    """Returns a sequence's source, or None where it has nothing to draft from."""
    is_setting: bool = True
    """Whether settings and requests choose it by name."""
    needs_topk: bool = False
    """Whether it lives on the target's top-k, which takes a pass over every logit."""


def _grammar(inputs: SourceInputs) -> GrammarSource | None:
    return None if inputs.new_sequence.sampling.grammar is None else GrammarSource(inputs.number)


def _prediction(inputs: SourceInputs) -> PredictionSource | None:
    new_sequence = inputs.new_sequence
    if not new_sequence.prediction:
        return None
    output_count = len(new_sequence.tokens) - new_sequence.prompt_count
    return PredictionSource(inputs.number, inputs.text, new_sequence.prediction, output_count)


def _votes(*by_length: float) -> tuple[float, ...]:
    """Return the priors of votes: match lengths, each with four levels of agreement."""
    return tuple(base * share for base, share in product(by_length, (0.2, 0.4, 0.7, 0.9)))


SOURCES = (
    SourceSpec(
        "grammar",
        "tokens that the requested format leaves no choice about",
        (1.0,),
        Colour("#b45309", "#d6a27a", 93),
        _grammar,
    ),
    SourceSpec(
        "prediction",
        "the answer that the request predicts",
        (0.25, 0.35, 0.4, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.8),
        Colour("#c49a00", "#f0d060", 36),
        _prediction,
        is_setting=False,
    ),
    SourceSpec(
        "ngram",
        "what followed the longest match earlier in the text",
        (0.3, 0.4, 0.5, 0.7, 0.85),
        Colour("#2f6fde", "#7aa7ff", 34),
        lambda inputs: NgramSource(inputs.number, inputs.text),
    ),
    SourceSpec(
        "suffix",
        "what followed most of the matches earlier in the text",
        _votes(0.5, 0.6, 0.7, 0.85, 0.95),
        Colour("#1f9d61", "#5fd49a", 32),
        lambda inputs: SuffixSource(inputs.number, inputs.text, inputs.noise),
    ),
    SourceSpec(
        "store",
        "what followed in finished answers to the same API key or cache salt",
        _votes(0.4, 0.5, 0.7, 0.85, 0.95),
        Colour("#0d9488", "#4fd1c5", 92),
        lambda inputs: StoreSource(inputs.number, inputs.text, inputs.memory.store, inputs.noise),
    ),
    SourceSpec(
        "recycle",
        "what the model ranked best when the same token came before",
        # Eight bands of scores: of the best successor and the others, without noise and with it.
        (
            *(0.05, 0.08, 0.12, 0.19, 0.3, 0.4, 0.5, 0.5),
            *(0.01, 0.03, 0.12, 0.15, 0.2, 0.2, 0.2, 0.2),
            *(0.03, 0.06, 0.15, 0.2, 0.27, 0.35, 0.52, 0.5),
            *(0.02, 0.045, 0.075, 0.1, 0.13, 0.13, 0.13, 0.13),
        ),
        Colour("#d97706", "#fbb454", 33),
        lambda inputs: RecycleSource(
            inputs.number, inputs.text, inputs.memory.successors, inputs.noise
        ),
        needs_topk=True,
    ),
    SourceSpec(
        "head",
        "the draft head, a small network over the model's hidden state",
        # As those of recycle.
        (
            *(0.03, 0.05, 0.1, 0.25, 0.5, 0.7, 0.9, 0.9),
            *(0.01, 0.03, 0.08, 0.2, 0.3, 0.3, 0.3, 0.3),
            *(0.1, 0.15, 0.25, 0.35, 0.45, 0.55, 0.7, 0.7),
            *(0.03, 0.05, 0.08, 0.12, 0.15, 0.18, 0.2, 0.2),
        ),
        Colour("#7c8a00", "#d3dc5a", 96),
        lambda inputs: HeadSource(inputs.number, inputs.text, inputs.noise),
    ),
    SourceSpec(
        "draft",
        "the draft model, a second and smaller one",
        (0.65,),
        Colour("#9333ea", "#c792ff", 35),
        lambda _: None,  # its tokens come after the other sources'
    ),
)
"""By source number, which is also the order in which sources add their guesses to a tree."""

NUMBERS = {spec.name: number for number, spec in enumerate(SOURCES)}
PRIORS = {spec.name: spec.priors for spec in SOURCES}
SETTINGS = tuple(spec.name for spec in SOURCES if spec.is_setting)
"""The sources that a server may be told to use, and a request may choose from."""
WITHOUT_MODEL = tuple(name for name in SETTINGS if name != "draft")
"""The sources that need no second model."""


def make_sources(inputs: SourceInputs, allowed: Iterable[str]) -> list[DraftSource]:
    """Return the sources of a new sequence, in the order of the table."""
    names = frozenset(allowed)
    # Those that are no setting follow from what the request says, whatever sources it allows.
    made = (
        spec.make(inputs._replace(number=number))
        for number, spec in enumerate(SOURCES)
        if spec.name in names or not spec.is_setting
    )
    return [source for source in made if source is not None]


def need_topk(names: Iterable[str]) -> bool:
    """Whether one of these sources lives on the target's top-k."""
    allowed = frozenset(names)
    return any(spec.needs_topk and spec.name in allowed for spec in SOURCES)
