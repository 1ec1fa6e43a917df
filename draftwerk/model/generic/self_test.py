"""What a model of Transformers must pass before it serves: one text, computed in every way."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.generic.causal_lm import CausalLM
from draftwerk.model.generic.generic_forward import GenericForward
from draftwerk.model.generic.paged_attention import NAME, ProbedRound
from draftwerk.model.reference.kv_pages import page_shape, private_pages
from draftwerk.speculative.rounds import NO_DRAFT, Draft

CPU = torch.device("cpu")
BLOCK_SIZE = 16
BLOCKS, OTHER_BLOCKS = (2, 0, 1, 8), (3, 7, 4, 6, 5)
LENGTH, OTHER_LENGTH = 40, 70
"""Tokens of the text, and of one beside it."""
CHUNKS = (1, 7, 32)
PREFIX = 30
"""Tokens of the text before a tree of drafts."""
STRIDE = 7919
"""Between two tokens: a prime, so that they differ."""
LIMITS = {torch.float32: (1.0, 1e-4), torch.bfloat16: (0.5, 0.05)}
"""How many of the tokens must have logits near those of eager attention, and how near, in parts of
the largest. Where bf16 rounds scores of experts to others, a token is far away."""


def check_model(forward: GenericForward, model: CausalLM) -> None:
    """Raise Refused, with numbers, for a model whose logits depend on how a text is computed."""
    test = SelfTest(forward, model)
    try:
        alone = test.alone()
    except Refused:
        raise
    except Exception as error:  # whatever a class makes of arguments that it does not know
        raise Refused(f"the model does not run over pages: {error}") from error
    for way, rows, logits in test.ways():
        if not torch.equal(logits, alone[rows]):
            far = (logits - alone[rows]).abs().max().item()
            raise Refused(f"logits of a text {way} are up to {far:.2g} from those of it alone")
    share, limit = LIMITS[forward.model.dtype]
    distances = (test.eager() - alone).abs().amax(-1) / alone.abs().max()
    far = distances.quantile(share).item()
    if not far <= limit:
        raise Refused(
            f"logits are {far:.2g} of the largest from those of Transformers' own attention, and "
            f"{limit:g} is allowed"
        )


class SelfTest:
    """A text's logits, computed in several ways over pages of their own."""

    def __init__(self, forward: GenericForward, model: CausalLM) -> None:
        self.forward, self.model = forward, model
        count = len(BLOCKS + OTHER_BLOCKS)
        self.pages = private_pages(page_shape(model, count, BLOCK_SIZE), forward.model.dtype)
        self.text, self.other = (
            [1 + number * STRIDE % (model.vocab_size - 1) for number in range(first, first + count)]
            for first, count in ((0, LENGTH), (LENGTH, OTHER_LENGTH))
        )

    def alone(self) -> Tensor:
        """Return the logits of every token [T, vocab]; the model's calls are checked meanwhile."""
        builder = BatchBuilder(BLOCK_SIZE)
        self._add(builder, range(LENGTH))
        forward = self.forward
        probe = ProbedRound(builder.batch(CPU), self.pages, forward.attention, forward.layers)
        logits = self.forward.run(probe)
        check_windows(probe.windows, self.model)
        if logits.shape[1] != self.model.vocab_size:
            raise Refused(
                f"vocab_size is {self.model.vocab_size}, and logits are {logits.shape[1]}"
            )
        return logits

    def ways(self) -> Iterator[tuple[str, slice, Tensor]]:
        """Yield how the text was computed, which of its tokens, and their logits."""
        yield "beside another", slice(None), self._together()
        yield "in chunks", slice(None), self._in_chunks()
        yield "in a tree of drafts", slice(PREFIX, None), self._as_tree()

    def _add(self, builder: BatchBuilder, part: range) -> None:
        """Add some of the text's tokens as a row, with all their logits."""
        tokens = self.text[part.start : part.stop]
        builder.add(tokens, part.start, BLOCKS, NO_DRAFT, False, with_logits=range(len(tokens)))

    def _run(self, builder: BatchBuilder) -> Tensor:
        return self.forward(builder.batch(CPU), self.pages)

    def _together(self) -> Tensor:
        builder = BatchBuilder(BLOCK_SIZE)
        builder.add(self.other, 0, OTHER_BLOCKS, NO_DRAFT, samples=False)
        self._add(builder, range(LENGTH))
        return self._run(builder)

    def _in_chunks(self) -> Tensor:
        found: list[Tensor] = []
        start = 0
        for count in CHUNKS:
            builder = BatchBuilder(BLOCK_SIZE)
            self._add(builder, range(start, start + count))
            found.append(self._run(builder))
            start += count
        return torch.cat(found)

    def _as_tree(self) -> Tensor:
        """Return the logits of the text's end, drafted with a wrong token beside each.

        What the pages hold of the text before it stays.
        """
        tokens: list[int] = []
        parents: list[int] = []
        for token in self.text[PREFIX + 1 :]:
            parent = len(tokens) - 1
            tokens += [self.other[0], token]
            parents += [parent, parent]
        builder = BatchBuilder(BLOCK_SIZE)
        draft = Draft(tuple(tokens), tuple(parents), ("self-test",) * len(tokens))
        builder.add(self.text[PREFIX : PREFIX + 1], PREFIX, BLOCKS, draft, samples=True)
        return self._run(builder)[0::2]

    @torch.inference_mode()
    def eager(self) -> Tensor:
        """Return the logits by Transformers' own attention and cache, in two parts."""
        model: Any = self.forward.model
        model.set_attn_implementation("eager")
        try:
            tokens, positions = torch.tensor([self.text]), torch.arange(PREFIX)[None]
            first = model(tokens[:, :PREFIX], use_cache=True)
            again = model(tokens[:, :PREFIX], position_ids=positions, use_cache=False)
            rest = model(tokens[:, PREFIX:], past_key_values=first.past_key_values, use_cache=True)
        finally:
            model.set_attn_implementation(NAME)
        if not torch.equal(first.logits, again.logits):
            raise Refused("the model does not count its positions from 0")
        return torch.cat([first.logits, rest.logits], 1)[0].float()


def check_windows(windows: list[int], model: CausalLM) -> None:
    """Refuse a model whose layers do not ask for the windows that its config says they have."""
    config: Any = model.config
    if len(windows) != len(model.layers):
        raise Refused(f"{len(windows)} of {len(model.layers)} layers call their attention")
    if (window := getattr(config, "sliding_window", None)) is None:
        return
    kinds = getattr(config, "layer_types", None)
    wanted = [window if kind == "sliding_attention" else 0 for kind in kinds or ()]
    is_used = getattr(config, "use_sliding_window", True)
    if wanted != windows if kinds else is_used and not any(windows):
        raise Refused(f"sliding_window {window} does not arrive at the attention of its layers")
