"""A verify step's answers on the device, and what follows from them, in one way there and back.

Queued behind the forward pass: the token at every node, the walk down the trees, the moves of the
accepted paths, a draft head's thoughts behind them. The host then reads what was decided.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from draftwerk.model.batch.batch import Forward, Pages
from draftwerk.model.draft_head.tree import FIELDS, SLOTS, thoughts_of
from draftwerk.model.gpu.commit import Forest, compact, forest_laid_out, forest_of, walk
from draftwerk.model.gpu.draft_tree import GpuThinker
from draftwerk.model.gpu.sampler import WORDS, asked_of, is_served, laid_out, settled
from draftwerk.model.gpu.transfer import to_device, to_host
from draftwerk.model.reference.sampler import Ask, losses_of
from draftwerk.model.step.presampled import Foreseen, Questions, Tree
from draftwerk.speculative.sampling.params import Sampling
from draftwerk.speculative.sources.sequence_noise import Key


class Foresight:
    """A `presampled.Foresee`: answers all asks that the kernels serve, and acts on them."""

    def __init__(self, forward: Forward, pages: Pages, thinker: GpuThinker | None = None) -> None:
        """`forward` and its pages are those of the logits; it keeps `states` for a thinker."""
        self.forward, self.pages, self.thinker = forward, pages, thinker

    @torch.inference_mode()
    def __call__(self, logits: Tensor, questions: Questions) -> Foreseen:
        """Queue everything, then wait once."""
        asks = [ask for ask in questions.asks if is_served(ask)]
        rows, count = list(questions.curious), questions.best_count
        trees = _whole(asks, questions.trees)
        answers, forest = self._asked(logits, asks, trees)
        parts = [answers]
        thinking = self._committed(answers, forest, trees, parts)
        if rows:
            places = to_device(torch.tensor(rows), logits.device)
            values, tokens = logits[places].log_softmax(-1).topk(count, dim=-1)
            parts += [tokens.int().flatten(), losses_of(values).flatten()]
        told = iter(to_host(torch.cat(parts)).split([len(part) for part in parts]))
        chosen, sound = next(told).split([len(asks), len(logits)])
        thoughts = next(told).view(-1, SLOTS, FIELDS).tolist() if thinking else []
        best = [next(told).view(-1, count).tolist() for _ in range(2)] if rows else [[], []]
        return Foreseen(
            frozenset(row for row, number in enumerate(sound.tolist()) if not number),
            {ask.logits_row: token for ask, token in zip(asks, chosen.tolist(), strict=True)},
            {
                row: (tuple(tokens), tuple(losses))
                for row, tokens, losses in zip(rows, *best, strict=True)
            },
            frozenset(tree.first for tree in trees),
            {
                tree.first: thoughts_of(slots)
                for tree, slots in zip(thinking, thoughts, strict=True)
            },
        )

    def warm_up(self, vocab: int) -> None:
        """Compile the kernels, so that no request waits for that; the pages hold nothing yet."""
        logits = torch.zeros(3, vocab, device=self.pages.keys.device)
        asks = [Ask(row, row, Sampling(temperature=0.0)) for row in range(3)]
        tree = Tree(0, (-1, -1), (1, 0), [0, 1], 1, asks[0].sampling, thinks=False)
        self(logits, Questions(asks, trees=[tree]))

    def _asked(
        self, logits: Tensor, asks: Sequence[Ask], trees: Sequence[Tree]
    ) -> tuple[Tensor, Forest]:
        """Queue the answers: int32, of the asks, then of each row of logits 1 if it is numbers."""
        numbers = forest_laid_out(trees)
        words = laid_out(asks)
        host = np.concatenate([words, np.zeros((len(numbers) + 1) // 2, np.int64)])
        host[len(words) :].view(np.int32)[: len(numbers)] = numbers
        there = to_device(torch.from_numpy(host), logits.device)
        asked = asked_of(there[: WORDS * len(asks)])
        forest = there[WORDS * len(asks) :].view(torch.int32)[: len(numbers)]
        sampled = not all(ask.is_greedy for ask in asks)
        return settled(logits, asked, sampled, len(logits)), forest_of(forest, len(trees))

    def _committed(
        self, answers: Tensor, forest: Forest, trees: Sequence[Tree], parts: list[Tensor]
    ) -> list[Tree]:
        """Queue what follows from the answers; add thoughts to the parts of what is read.

        Returns the trees that are thought on from.
        """
        states = getattr(self.forward, "states", None)
        thinks = self.thinker is not None and states is not None
        thinking = [index for index, tree in enumerate(trees) if thinks and tree.thinks]
        moves = any(not tree.is_chain for tree in trees)
        if not moves and not thinking:
            return []
        paths, ends = walk(answers, forest, max(len(tree.parents) + 1 for tree in trees))
        if moves:
            compact(self.pages, forest, paths, ends)
        if thinking and self.thinker is not None and states is not None:
            firsts = forest.firsts
            if len(thinking) < len(trees):
                which = to_device(torch.tensor(thinking), answers.device)
                firsts, ends = firsts[which], ends[which]
            accepted, last, said = ends.unbind(1)
            keys = [(Key(tree.sampling), tree.stop + 1) for tree in trees if tree.thinks]
            found = self.thinker.queue(states[firsts + last], said, keys, accepted)
            parts.append(found.flatten())
        return [trees[index] for index in thinking]


def _whole(asks: Sequence[Ask], trees: Iterable[Tree]) -> list[Tree]:
    """Return the trees of which every node is asked; all asks are theirs, in their order."""
    places = {ask.logits_row: place for place, ask in enumerate(asks)}
    found = [tree for tree in trees if tree.first in places]
    begins = [*(places[tree.first] for tree in found), len(asks)]
    sizes = [len(tree.parents) + 1 for tree in found]
    assert not found or begins[0] == 0
    assert all(b - a == size for (a, b), size in zip(pairwise(begins), sizes, strict=True))
    return found
