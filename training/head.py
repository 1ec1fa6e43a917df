"""Train a draft head for a model on texts that the model generated.

`python -m training.head texts.jsonl head.safetensors` runs the model over the texts of
`training.talk`, keeps its last hidden states, and trains the head to predict the model's next
distribution, then the one after that, each time given the token between: the loss is the
divergence from the model's own distribution over the head's vocabulary, at each depth.
"""

import argparse
import itertools
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, linear

from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.draft_head.head import DraftHead, advance, find
from training.bf16_copy import bf16_copy
from training.courses import optimised
from training.saved_head import save
from training.states import Estimate, kept_path

DEPTHS = 3
DEPTH_WEIGHT = 0.8
"""A depth counts this much less than the one before: it is come to less often."""
HELD_OUT = 0.03
PLACES = 256
"""Whose logits are looked at together: few enough for a cache."""


@dataclass(slots=True)
class Corpus:
    """Texts end to end: the tokens, and the model's hidden state before each."""

    tokens: Tensor
    """[N] int64"""
    hidden: Tensor
    """[N, H] bf16: the last hidden state behind each token, normalised."""
    left: Tensor
    """[N]: how many tokens of the same text follow."""

    def on(self, device: torch.device) -> "Corpus":
        return Corpus(self.tokens.to(device), self.hidden.to(device), self.left.to(device))

    def part(self, first: int, last: int) -> "Corpus":
        return Corpus(self.tokens[first:last], self.hidden[first:last], self.left[first:last])


class Trained(nn.Module):
    """The head in training; `model.draft_head.head` describes what it computes."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_up = nn.Parameter(torch.randn(2 * inner, 2 * width) * (2 * width) ** -0.5)
        self.down = nn.Parameter(torch.randn(width, inner) * 0.1 * inner**-0.5)
        self.keep = nn.Parameter(torch.zeros(width))
        self.state_norm = nn.Parameter(torch.ones(width))
        self.token_norm = nn.Parameter(torch.ones(width))
        self.norm = nn.Parameter(torch.ones(width))

    @torch.no_grad()
    def take(self, head: DraftHead) -> None:
        """Begin with the weights of a head that is no larger; what is new in here keeps silent."""
        inner = head.down.shape[-1]
        for name in ("keep", "state_norm", "token_norm", "norm"):
            getattr(self, name).copy_(getattr(head, name))
        for mine, theirs in zip(self.gate_up.chunk(2), head.gate_up.chunk(2), strict=True):
            mine[:inner] = theirs
        self.down.zero_()
        self.down[:, :inner] = head.down

    def forward(self, state: Tensor, embedded: Tensor) -> Tensor:
        return advance(self, state, embedded)


def read(path: Path, limit: int) -> list[list[int]]:
    """Return the texts, shortest lines left out, until there are `limit` tokens."""
    texts: list[list[int]] = []
    count = 0
    for line in path.read_text().splitlines():
        tokens = json.loads(line)
        if len(tokens) > DEPTHS + 2 and count < limit:
            texts.append(tokens)
            count += len(tokens)
    return texts


@torch.no_grad()
def look(texts: list[list[int]], directory: Path, device: torch.device) -> Corpus:
    """Run the model over the texts."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16).model.to(device)
    hidden: list[Tensor] = []
    estimate = Estimate(0, len(texts))
    for done, tokens in enumerate(texts, start=1):
        hidden.append(model(torch.tensor([tokens], device=device)).last_hidden_state[0].cpu())
        if done % 500 == 0:
            print(f"texts: {estimate.line(done)}", flush=True)
    left = torch.cat([torch.arange(len(text) - 1, -1, -1) for text in texts])
    return Corpus(torch.tensor([t for text in texts for t in text]), torch.cat(hidden), left)


def frequent(texts: list[list[int]], size: int, vocab: int) -> Tensor:
    """Return the most frequent tokens, ascending, filled up with the first of the vocabulary."""
    counts = Counter(itertools.chain.from_iterable(texts))
    chosen = [token for token, _ in counts.most_common(size)]
    share = sum(counts[token] for token in chosen) / counts.total()
    print(f"{len(chosen)} tokens are {share:.4f} of all generated ones")
    others = (token for token in range(vocab) if token not in counts)
    chosen.extend(itertools.islice(others, size - len(chosen)))
    return torch.tensor(sorted(chosen))


class Distance(torch.autograd.Function):
    """Kullback-Leibler divergences from the target's distributions, some positions at a time.

    The logits of a whole batch would go through memory again and again; the target's lm_head is
    fixed, so all that is kept is the gradient of the states.
    """

    @staticmethod
    def forward(
        ctx: Any, small: Tensor, hidden: Tensor, left: Tensor, *states: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return by depth the mean loss, and the share of first choices that are the target's."""
        gradients = [torch.zeros_like(state) for state in states]
        counts = [int((left[: len(state)] >= n).sum()) for n, state in enumerate(states, 1)]
        losses, same = (torch.zeros(len(states), device=hidden.device) for _ in range(2))
        for first in range(1, len(hidden), PLACES):
            wanted = linear(hidden[first : first + PLACES], small).float().log_softmax(-1)
            teacher, best = wanted.exp(), wanted.argmax(-1)
            for n, (state, gradient) in enumerate(zip(states, gradients, strict=True)):
                # State m of depth n + 1 is about place m + n + 1.
                begin = max(0, first - n - 1)
                skipped = begin + n + 1 - first
                mine = slice(begin, first + len(wanted) - n - 1)
                counted = (left[mine] > n)[:, None] / max(1, counts[n])
                logits = linear(state[mine].to(small.dtype), small).float()
                predicted = logits.log_softmax(-1)
                theirs = teacher[skipped:]
                losses[n] += (kl_div(predicted, theirs, reduction="none") * counted).sum()
                hits = predicted.argmax(-1) == best[skipped:]
                same[n] += (hits * counted[:, 0]).sum()
                miss = (predicted.exp() - theirs) * counted
                gradient[mine] = (miss.to(small.dtype) @ small).float()
        ctx.save_for_backward(*gradients)
        ctx.mark_non_differentiable(same)
        return losses, same

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  as torch documents it
        ctx: Any, losses: Tensor, same: Tensor
    ) -> tuple[Tensor | None, ...]:
        scaled = (loss * known for loss, known in zip(losses, ctx.saved_tensors, strict=True))
        return None, None, None, *scaled


@dataclass(slots=True)
class Course:
    """A head, its training texts, and the optimiser."""

    corpus: Corpus
    embedding: Tensor
    small: Tensor
    """[V, H]: the rows of the target's head that the draft head may guess."""
    head: Trained
    batch: int
    """Tokens in a step."""

    @property
    def device(self) -> torch.device:
        return self.small.device

    @property
    def taught(self) -> int:
        """How many tokens are learnt from; those after them are held out."""
        return int(len(self.corpus.tokens) * (1 - HELD_OUT))

    def marks(self, first: int) -> tuple[Tensor, Tensor]:
        """Return by depth the mean loss, and the share of places with the target's first choice."""
        part = self.corpus.part(first, first + self.batch)
        state, states = part.hidden.float(), list[Tensor]()
        for depth in range(1, DEPTHS + 1):
            # Position n is given the target's state at n and the tokens up to n + depth.
            state = self.head(state[:-1], self.embedding[part.tokens[depth:]])
            states.append(state)
        return Distance.apply(self.small, part.hidden, part.left, *states)

    def learn(self, epochs: float, rate: float, rest: Callable[[], None]) -> None:
        """Go through the corpus in random order, and `rest` now and then."""
        firsts = list(range(0, self.taught - self.batch, self.batch))
        steps = int(epochs * len(firsts))
        optimiser, schedule = optimised(self.head.parameters(), rate, steps)
        estimate, order = Estimate(0, steps), list[int]()
        for step in range(1, steps + 1):
            order = order or torch.randperm(len(firsts)).tolist()
            shifted = firsts[order.pop()] + int(torch.randint(0, self.batch, ()))
            with torch.autocast(self.device.type, torch.bfloat16):
                losses, shares = self.marks(min(shifted, self.taught - self.batch))
            loss = (DEPTH_WEIGHT ** torch.arange(DEPTHS, device=self.device) * losses).sum()
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.head.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            if step % 50 == 0:
                print(f"{estimate.line(step)}: {told(losses, shares)}", flush=True)
            if step % 400 == 0:
                rest()

    @torch.no_grad()
    def evaluate(self) -> str:
        """Return the marks on what was held out, as a line."""
        firsts = range(self.taught, len(self.corpus.tokens) - self.batch + 1, self.batch)
        with torch.autocast(self.device.type, torch.bfloat16):
            found = [self.marks(first) for first in firsts]
        if not found:
            return "nothing was held out"
        losses, shares = (torch.stack(column).mean(0) for column in zip(*found, strict=True))
        return told(losses, shares)


def told(losses: Tensor, shares: Tensor) -> str:
    columns = ("loss", losses.tolist()), ("same", shares.tolist())
    return "  ".join(f"{name} " + " ".join(f"{v:.3f}" for v in values) for name, values in columns)


def train(arguments: argparse.Namespace) -> None:
    directory = bf16_copy(locate(arguments.model))
    target = load(str(directory), torch.bfloat16)
    texts = read(arguments.texts, arguments.tokens)
    vocabulary = frequent(texts, arguments.vocabulary, target.config.vocab_size)
    cache = kept_path(arguments.texts, texts, directory, "head")
    if cache.exists():
        corpus = Corpus(**torch.load(cache))
    else:
        corpus = look(texts, directory, arguments.device)
        torch.save({"tokens": corpus.tokens, "hidden": corpus.hidden, "left": corpus.left}, cache)
    head = Trained(target.config.hidden_size, arguments.inner)
    weights = target.weights
    if arguments.start is not None:
        begun = find(str(arguments.start), target.config, weights)
        assert begun is not None
        head.take(begun)
    device: torch.device = arguments.device
    course = Course(
        corpus.on(device),
        weights.embedding.to(device),
        weights.lm_head[vocabulary].to(device),
        head.to(device),
        arguments.batch,
    )

    def rest() -> None:
        print(f"held out: {course.evaluate()}", flush=True)
        save(finished(head, vocabulary), weights, arguments.output)

    course.learn(arguments.epochs, arguments.rate, rest)
    rest()


def finished(head: Trained, vocabulary: Tensor) -> DraftHead:
    """Return a head as it is used."""
    values = {name: value.detach().float().cpu() for name, value in head.named_parameters()}
    return DraftHead(vocabulary=vocabulary, **values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--start", type=Path, help="a head to go on from, no larger")
    parser.add_argument("--tokens", type=int, default=10**9, help="of the texts at most")
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--inner", type=int, default=512)
    parser.add_argument("--batch", type=int, default=2048, help="tokens in a step")
    parser.add_argument("--epochs", type=float, default=4)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    train(parser.parse_args())


if __name__ == "__main__":
    main()
