"""Train a draft head for a model on what the model itself said.

`python -m training.head texts.jsonl head.safetensors` runs the model over the texts of
`training.talk`, keeps its last hidden states, and trains the head to say what the model will think
next, then what it will think after that, each time knowing the token between: the loss is the
cross-entropy from the model's own distribution over the head's vocabulary, at each depth.
"""

import argparse
import itertools
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, linear, rms_norm, silu

from model.draft_head import DraftHead, save
from model.hub import locate
from model.loader import load

DEPTHS = 3
DEPTH_WEIGHT = 0.8
"""A depth counts this much less than the one before: it is come to less often."""
HELD_OUT = 0.03


@dataclass(slots=True)
class Corpus:
    """Texts end to end: what was said, and what the model had in mind before saying it."""

    tokens: Tensor
    """[N] int64"""
    hidden: Tensor
    """[N, H] bf16: the last hidden state behind each token, normalised."""
    left: Tensor
    """[N]: how many tokens of the same text follow."""

    def part(self, first: int, last: int) -> "Corpus":
        return Corpus(self.tokens[first:last], self.hidden[first:last], self.left[first:last])


class Trained(nn.Module):
    """The head while it learns; `model.draft_head` says what it computes."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_up = nn.Parameter(torch.randn(2 * inner, 2 * width) * (2 * width) ** -0.5)
        self.down = nn.Parameter(torch.randn(width, inner) * 0.1 * inner**-0.5)
        self.keep = nn.Parameter(torch.zeros(width))
        self.state_norm = nn.Parameter(torch.ones(width))
        self.token_norm = nn.Parameter(torch.ones(width))
        self.norm = nn.Parameter(torch.ones(width))

    def forward(self, state: Tensor, embedded: Tensor) -> Tensor:
        wide = state.shape[-1:]
        seen = torch.cat(
            [rms_norm(state, wide, self.state_norm), rms_norm(embedded, wide, self.token_norm)], -1
        )
        gate, up = linear(seen, self.gate_up).chunk(2, -1)
        return rms_norm(self.keep * state + linear(silu(gate) * up, self.down), wide, self.norm)


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
def look(texts: list[list[int]], directory: Path) -> Corpus:
    """Run the model over the texts."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16).model
    hidden: list[Tensor] = []
    begun = perf_counter()
    for index, tokens in enumerate(texts):
        hidden.append(model(torch.tensor([tokens])).last_hidden_state[0])
        if index % 500 == 0:
            print(f"{index} of {len(texts)} texts, {perf_counter() - begun:.0f} s", flush=True)
    left = torch.cat([torch.arange(len(text) - 1, -1, -1) for text in texts])
    return Corpus(torch.tensor([t for text in texts for t in text]), torch.cat(hidden), left)


def frequent(texts: list[list[int]], size: int, vocab: int) -> Tensor:
    """Return the tokens that are said most, ascending; the first of the vocabulary fill up."""
    counts = Counter(itertools.chain.from_iterable(texts))
    chosen = [token for token, _ in counts.most_common(size)]
    share = sum(counts[token] for token in chosen) / counts.total()
    print(f"{len(chosen)} tokens are {share:.4f} of all that is said")
    others = (token for token in range(vocab) if token not in counts)
    chosen.extend(itertools.islice(others, size - len(chosen)))
    return torch.tensor(sorted(chosen))


def losses(
    head: Trained, corpus: Corpus, embedding: Tensor, small: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """Return by depth the mean loss, and the share of places where both think of the same token."""
    with torch.no_grad():
        wanted = linear(corpus.hidden, small)
        thought, best = wanted.float().softmax(-1), wanted.argmax(-1)
    state = corpus.hidden
    found: list[Tensor] = []
    right: list[Tensor] = []
    for depth in range(1, DEPTHS + 1):
        # Place n knows the model's state at n and the tokens up to n + depth.
        state = head(state[:-1], embedding[corpus.tokens[depth:]])
        places = (corpus.left[: len(state)] >= depth).nonzero()[:, 0]
        logits = linear(state[places], small)
        said = logits.float().log_softmax(-1)
        found.append(kl_div(said, thought[places + depth], reduction="batchmean"))
        right.append((logits.argmax(-1) == best[places + depth]).float().mean())
    return found, right


def train(arguments: argparse.Namespace) -> None:
    directory = locate(arguments.model).directory
    model = load(str(directory), torch.bfloat16)
    texts = read(arguments.texts, arguments.tokens)
    vocabulary = frequent(texts, arguments.vocabulary, model.config.vocab_size)
    cache = arguments.texts.with_suffix(f".{len(texts)}.pt")
    if cache.exists():
        corpus = Corpus(**torch.load(cache))
    else:
        corpus = look(texts, directory)
        torch.save({"tokens": corpus.tokens, "hidden": corpus.hidden, "left": corpus.left}, cache)
    small, embedding = model.weights.head[vocabulary], model.weights.embedding
    head = Trained(model.config.hidden_size, arguments.inner)
    held = int(len(corpus.tokens) * (1 - HELD_OUT))
    chunk = arguments.batch
    firsts = list(range(0, held - chunk, chunk))
    steps = int(arguments.epochs * len(firsts))
    optimiser = torch.optim.AdamW(
        head.parameters(), lr=arguments.rate, betas=(0.9, 0.98), weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, arguments.rate, total_steps=steps + 1, pct_start=0.05, cycle_momentum=False
    )
    weights = [DEPTH_WEIGHT**depth for depth in range(DEPTHS)]
    begun = perf_counter()

    def judge() -> None:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            sums = torch.zeros(2, DEPTHS)
            parts = [
                corpus.part(n, n + chunk) for n in range(held, len(corpus.tokens) - chunk, chunk)
            ]
            for part in parts:
                found = losses(head, part, embedding, small)
                sums += torch.stack([torch.stack(values) for values in found])
        loss, right = (sums / max(len(parts), 1)).tolist()
        print(
            "held out: loss",
            [f"{v:.3f}" for v in loss],
            "same",
            [f"{v:.3f}" for v in right],
            flush=True,
        )

    for step in range(steps):
        if step % len(firsts) == 0:
            order = torch.randperm(len(firsts)).tolist()
        shift = int(torch.randint(0, chunk, ()))
        first = min(firsts[order[step % len(firsts)]] + shift, held - chunk)
        with torch.autocast("cpu", torch.bfloat16):
            found, right = losses(head, corpus.part(first, first + chunk), embedding, small)
            loss = sum(w * v for w, v in zip(weights, found, strict=True))
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % 50 == 0:
            same = [f"{float(v):.3f}" for v in right]
            spent = perf_counter() - begun
            print(f"{step}/{steps} {spent:.0f} s loss {found[0].item():.3f} {same}", flush=True)
        if step % 400 == 399:
            judge()
            save(finished(head, vocabulary), model.weights, arguments.output)
    judge()
    save(finished(head, vocabulary), model.weights, arguments.output)


def finished(head: Trained, vocabulary: Tensor) -> DraftHead:
    values = {name: value.detach().float() for name, value in head.named_parameters()}
    return DraftHead(vocabulary=vocabulary, **values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--tokens", type=int, default=10**9, help="of the texts at most")
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--inner", type=int, default=512)
    parser.add_argument("--batch", type=int, default=2048, help="tokens in a step")
    parser.add_argument("--epochs", type=float, default=4)
    parser.add_argument("--rate", type=float, default=2e-3)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
