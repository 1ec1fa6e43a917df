"""A draft head: a small recurrent network that drafts from the target's own last hidden state.

    state 0 = the target's last hidden state, as its head reads it
    state d = norm(keep * state d-1 + down(silu(gate) * up)),
              gate, up of [norm(state d-1), norm(embedding of the token said next)]
    logits after d tokens = state d times the target's head, in rows of a small vocabulary

Like EAGLE (arXiv 2401.15077) it reads hidden states, like Hydra (arXiv 2402.05109) it knows the
tokens between, and like FR-Spec (arXiv 2502.14856) only the frequent ones; it has no keys and
values, so a guess leaves nothing behind. `training.head` makes one.
"""

import hashlib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from safetensors import safe_open
from torch import Tensor
from torch.nn.functional import linear, rms_norm, silu

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import Weights

EPSILON = 1e-5
HEADS = Path(__file__).parent / "weights"
"""Heads that come with the server, each for one model."""
TARGET = "target"


@dataclass(frozen=True, slots=True)
class DraftHead:
    """The weights of a head, of hidden size H, inner size M and V tokens."""

    vocabulary: Tensor
    """[V] int32: the tokens that it can guess, ascending."""
    gate_up: Tensor
    """[2 M, 2 H]: all gate rows, then all up rows; state columns, then token columns."""
    down: Tensor
    """[H, M]"""
    keep: Tensor
    """[H]"""
    state_norm: Tensor
    token_norm: Tensor
    norm: Tensor


class Steps(NamedTuple):
    """The head's states after one more token, row by row."""

    states: Tensor
    """[n, H] float32"""
    tokens: list[list[int]]
    """The best next tokens, best first."""
    logprobs: list[list[float]]


class HeadStep(Protocol):
    """A head bound to its target: one token on for every row."""

    def __call__(self, states: Tensor, tokens: list[int], count: int, /) -> Steps:
        """Return the states [n, H] after the tokens, and the `count` best that could follow.

        A vocabulary of fewer gives fewer.
        """
        ...


class Arithmetic(Protocol):
    """The weights of a head but its vocabulary, as it is used or while it learns."""

    @property
    def gate_up(self) -> Tensor: ...
    @property
    def down(self) -> Tensor: ...
    @property
    def keep(self) -> Tensor: ...
    @property
    def state_norm(self) -> Tensor: ...
    @property
    def token_norm(self) -> Tensor: ...
    @property
    def norm(self) -> Tensor: ...


def advance(head: Arithmetic, states: Tensor, embedded: Tensor) -> Tensor:
    """Return the states [n, H] after one more token each, from its embedding [n, H].

    Both float32, as the norms; the matrices may be narrower.
    """
    width = states.shape[-1:]
    before = rms_norm(states, width, head.state_norm, EPSILON)
    said = rms_norm(embedded, width, head.token_norm, EPSILON)
    seen = torch.cat([before, said], -1).to(head.gate_up.dtype)
    gate, up = linear(seen, head.gate_up).chunk(2, -1)
    mixed = head.keep * states + linear(silu(gate) * up, head.down)
    return rms_norm(mixed, width, head.norm, EPSILON)


def fingerprint(weights: Weights) -> str:
    """Return what tells a target from others: a digest of a little of its weights."""
    sample = torch.cat([weights.norm.float(), weights.embedding[:16].float().flatten()])
    return hashlib.sha256(
        sample.to(torch.bfloat16).view(torch.int16).cpu().numpy().tobytes()
    ).hexdigest()


def find(wanted: str, config: ModelConfig, weights: Weights) -> DraftHead | None:
    """Return the head at a path, or for "auto" the one that came for this target, if one did.

    Raises Refused for a file that is no head, or another target's.
    """
    paths = sorted(HEADS.glob("*.safetensors")) if wanted == "auto" else [Path(wanted)]
    target = fingerprint(weights)
    for path in paths:
        head = _read(path, target)
        if head is not None:
            return _checked(head, config, path)
    if wanted == "auto":
        return None
    raise Refused(f"draft head {wanted}: it was trained for another model")


def _read(path: Path, target: str) -> DraftHead | None:
    """Return the head in a file, or None if it was trained for another target."""
    try:
        with safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get(TARGET, "") != target:
                return None
            return DraftHead(*(file.get_tensor(field.name) for field in fields(DraftHead)))
    except Exception as error:  # the library raises its own kinds, and OSError
        raise Refused(f"draft head {path}: {error}") from error


def _checked(head: DraftHead, config: ModelConfig, path: Path) -> DraftHead:
    """Return the head if all its shapes go together."""
    hidden, inner = config.hidden_size, head.down.shape[-1]
    shapes = {"gate_up": (2 * inner, 2 * hidden), "down": (hidden, inner)}
    shapes |= dict.fromkeys(("keep", "state_norm", "token_norm", "norm"), (hidden,))
    for name, shape in shapes.items():
        if getattr(head, name).shape != shape:
            raise Refused(f"draft head {path}: {name} is not {shape}")
    if not 0 <= int(head.vocabulary.min()) <= int(head.vocabulary.max()) < config.vocab_size:
        raise Refused(f"draft head {path}: its vocabulary is not the model's")
    return head
