"""A verify step's answers on the device, and what follows from them, in one way there and back.

Queued behind the forward pass: the token at every node, the walk down the trees, the moves of the
accepted paths, the draft head's trees behind them. The host then reads what was decided.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from draftwerk.model.batch.batch import Pages
from draftwerk.model.draft_head.tree import LAYOUT
from draftwerk.model.gpu.commit import PackedTrees, compact, packed_trees, unpacked_trees, walk
from draftwerk.model.gpu.draft_tree import GpuDraftTree
from draftwerk.model.gpu.sampler import (
    WORDS,
    is_served,
    kind_of,
    packed_requests,
    queue_choice,
    unpacked_requests,
)
from draftwerk.model.gpu.truncated import UNKNOWN, without_unknown
from draftwerk.model.reference.sampler import SamplingRequest, losses_of
from draftwerk.model.reference.transfer import to_device, to_host
from draftwerk.model.step.loaded_model import BoundHead
from draftwerk.model.step.presampled import PackedTree, Presampled, RoundRequests
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.sources.sequence_noise import SequenceNoise


class GpuPresample:
    """A `presampled.Presample`: samples for all requests that the kernels serve, and acts on the
    tokens."""

    def __init__(self, pages: Pages, draft_head: BoundHead[GpuDraftTree] | None = None) -> None:
        """The pages, and the forward that the head is bound to, are those of the logits."""
        self.pages, self.draft_head = pages, draft_head

    @torch.inference_mode()
    def __call__(self, logits: Tensor, round_requests: RoundRequests) -> Presampled:
        """Queue everything, then wait once."""
        requests = [request for request in round_requests.requests if is_served(request)]
        rows, count = list(round_requests.topk_rows), round_requests.best_count
        trees = _whole(requests, round_requests.trees)
        answers, packed = self._asked(logits, requests, trees)
        parts = [answers]
        thinking = self._committed(answers, packed, trees, parts)
        if rows:
            indices = to_device(torch.tensor(rows), logits.device)
            values, tokens = logits[indices].log_softmax(-1).topk(count, dim=-1)
            parts += [tokens.int().flatten(), losses_of(values).flatten()]
        arrived = iter(to_host(torch.cat(parts)).split([len(part) for part in parts]))
        chosen, sound = (
            part.tolist() for part in next(arrived).split([len(requests), len(logits)])
        )
        head_trees = LAYOUT.unpack(next(arrived).tolist()) if thinking else []
        tokens = {
            request.logits_row: token
            for request, token in zip(requests, chosen, strict=True)
            if token != UNKNOWN
        }
        best = [next(arrived).view(-1, count).tolist() for _ in range(2)] if rows else [[], []]
        return Presampled(
            frozenset(row for row, number in enumerate(sound) if not number),
            tokens,
            {
                row: (tuple(ids), tuple(losses))
                for row, ids, losses in zip(rows, *best, strict=True)
            },
            frozenset(tree.first for tree in trees if tree.first in tokens),
            {
                tree.first: head_tree
                for tree, head_tree in zip(thinking, head_trees, strict=True)
                if tree.first in tokens
            },
        )

    def warm_up(self, vocab: int) -> None:
        """Compile the kernels, so that no request waits for that; the pages hold nothing yet."""
        logits = torch.zeros(3, vocab, device=self.pages.keys.device)
        requests = [SamplingRequest(row, row, Sampling(temperature=0.0)) for row in range(3)]
        tree = PackedTree(
            0, (-1, -1), (1, 0), [0, 1], 1, requests[0].sampling, wants_head_tree=False
        )
        self(logits, RoundRequests(requests, trees=[tree]))

    def _asked(
        self, logits: Tensor, requests: Sequence[SamplingRequest], trees: Sequence[PackedTree]
    ) -> tuple[Tensor, PackedTrees]:
        """Queue the answers: int32, one for each request, then for each row of logits 1 if it is
        finite."""
        numbers = packed_trees(trees)
        words = packed_requests(requests)
        host = np.concatenate([words, np.zeros((len(numbers) + 1) // 2, np.int64)])
        host[len(words) :].view(np.int32)[: len(numbers)] = numbers
        there = to_device(torch.from_numpy(host), logits.device)
        asked = unpacked_requests(there[: WORDS * len(requests)])
        packed = there[WORDS * len(requests) :].view(torch.int32)[: len(numbers)]
        kind, found = kind_of(requests), unpacked_trees(packed, len(trees))
        answers = queue_choice(logits, asked, kind, len(logits))
        if kind.truncated and trees:
            answers = without_unknown(answers, found.begins)
        return answers, found

    def _committed(
        self, answers: Tensor, packed: PackedTrees, trees: Sequence[PackedTree], parts: list[Tensor]
    ) -> list[PackedTree]:
        """Queue what follows from the answers; add the head trees to the parts that are read.

        Returns the trees that the draft head continues.
        """
        head = self.draft_head
        thinking = [
            index for index, tree in enumerate(trees) if head is not None and tree.wants_head_tree
        ]
        moves = any(not tree.is_chain for tree in trees)
        if not moves and not thinking:
            return []
        paths, ends = walk(answers, packed, max(len(tree.parents) + 1 for tree in trees))
        if moves:
            compact(self.pages, packed, paths, ends)
        if thinking and head is not None:
            firsts = packed.firsts
            if len(thinking) < len(trees):
                which = to_device(torch.tensor(thinking), answers.device)
                firsts, ends = firsts[which], ends[which]
            accepted, last, said = ends.unbind(1)
            keys = [
                (SequenceNoise(tree.sampling), tree.stop + 1)
                for tree in trees
                if tree.wants_head_tree
            ]
            found = head.step.queue(head.states[firsts + last], said, keys, accepted)
            parts.append(found.flatten())
        return [trees[index] for index in thinking]


def _whole(requests: Sequence[SamplingRequest], trees: Iterable[PackedTree]) -> list[PackedTree]:
    """Return the trees of which every node is requested; all requests are theirs, in their
    order."""
    indices = {request.logits_row: index for index, request in enumerate(requests)}
    found = [tree for tree in trees if tree.first in indices]
    begins = [*(indices[tree.first] for tree in found), len(requests)]
    sizes = [len(tree.parents) + 1 for tree in found]
    assert not found or begins[0] == 0
    assert all(b - a == size for (a, b), size in zip(pairwise(begins), sizes, strict=True))
    return found
