"""A model that is ready to run, and what its builders share."""

from pathlib import Path
from pkgutil import resolve_name
from typing import NamedTuple

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.gguf_card import read_card
from draftwerk.model.checkpoint.hub import cache_directory
from draftwerk.model.checkpoint.loader import Checkpoint
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.packed_weights import identity_fingerprint, weights_fingerprint
from draftwerk.model.checkpoint.recurrent_layers import STATE_LAYOUT
from draftwerk.model.process.measuring import StepTimes
from draftwerk.model.process.parts import merge_words
from draftwerk.model.ranks.group import RankGroup
from draftwerk.model.step.loaded_model import LoadedModel
from draftwerk.model.text.grammar import Grammars, grammars_of
from draftwerk.speculative.costs.roofline import Roofline
from draftwerk.speculative.protocol.forks import ForkedModel
from draftwerk.speculative.protocol.frames import Ready


class Built(NamedTuple):
    """A model, and what "auto" came to."""

    parts: LoadedModel
    device: str
    attention: str
    exact: bool
    """Whether a token's logits are the same bits whatever else is in the batch."""
    kernels: str = ""
    """The native kernels' instruction set and origin, or why there are none on a CPU."""
    threads: int = 0
    reading: tuple[int, float] = (0, 0.0)
    """Bytes that every step reads, and the milliseconds that this takes; 0 if not measured."""
    measured_s: float = 0.0
    """The time that measuring has taken so far."""
    roofline: Roofline | None = None
    """Where the machine's rates were measured."""
    fingerprint: str = ""
    """The fingerprint of everything that decides the bytes of keys and values beside the tokens."""
    blends: bool = False
    """Whether segments of prompts can be reused."""
    group: RankGroup | None = None
    """The other ranks of a divided model."""

    def ready(self, costs: StepTimes) -> Ready:
        """Return what the server is told of it."""
        states = self.parts.pages.states
        return Ready(
            device=self.device,
            attention=self.attention,
            exact=self.exact,
            kernels=self.kernels,
            threads=self.threads,
            draft_head=self.parts.draft_head.name if self.parts.draft_head else "",
            step_costs=costs,
            weight_bytes=self.reading[0],
            weight_ms=self.reading[1],
            roofline=self.roofline,
            pages=None if self.parts.shared is None else self.parts.shared.layout,
            ranks=() if self.group is None else tuple(self.group.process_ids.values()),
            fingerprint=self.fingerprint,
            blends=self.blends,
            states=(0, 0) if states is None else (len(states), states[0].nbytes),
        )


def extended(built: Built, options: ModelOptions) -> Built:
    """Return a model with what its options attach to it."""
    for name, argument in options.attached:
        built = resolve_name(name)(built, argument)
    return built


def state_words(config: ModelConfig) -> tuple[str, ...]:
    """Return what tells the bytes of recurrent states from those in another layout."""
    return (f"{STATE_LAYOUT}: {config.state_size} numbers",) if config.state_size else ()


def page_fingerprint(options: ModelOptions, directory: Path, words: tuple[str, ...]) -> str:
    """Return what tells these pages' bytes from all others; empty where nothing can."""
    if options.pages_descriptor < 0:
        return ""
    words = (options.dtype, options.kv_dtype, str(options.block_size), *words)
    words += merge_words(options)
    if read_card(directory) is not None and not options.hands_over_pages:
        # Hashing it would take longer than packing it.
        return identity_fingerprint(directory, words).hex()
    found = weights_fingerprint(directory, cache_directory(), words)
    return "" if found is None else found.hex()


def grammars_for(model: ForkedModel) -> Grammars | None:
    """Return the grammars over a model's tokens, before anything else of it is read."""
    return grammars_of(Path(model.directory), model.vocab_size, model.stop_token_ids)


def grammars_in(model: Checkpoint) -> Grammars | None:
    """Return the grammars over a loaded model's tokens."""
    config = model.config
    return grammars_of(model.directory, config.vocab_size, config.eos_token_ids)
