"""Draftwerk in one file: one seed, one text, with drafts or without, alone or in company.

    requests ── plan() ──> rows of a round ── forward() ──> logits ── verify() ──> tokens
                  ^                                                       │
                  └───────────────────── commit() <──────────────────────┘

Slow on purpose, and complete for one model: paged keys and values, prefix sharing, continuous
batching with chunked prompts, preemption, n-gram drafts, keyed verification. The server gives the
same tokens. docs/life-of-a-request.md says where the server does each of these.

    python docs/minimal.py MODEL.gguf TOKEN [TOKEN ...]
"""

import sys
from collections import deque
from dataclasses import dataclass, field
from hashlib import sha256

import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

from draftwerk.speculative.sampling import Sampling, choose  # the rule: 40 lines

BLOCK_SIZE = 16  # tokens in a block of keys and values
ROUND_TOKENS = 64  # tokens computed in a round, over all rows
DRAFT_MAX = 7  # drafted tokens in a row


# --- 1. The model: rows of tokens in, logits out --------------------------------------------------
class Model:
    """A Llama in float32 over paged keys and values, read from a GGUF file."""

    def __init__(self, path: str, block_count: int) -> None:
        reader = GGUFReader(path)
        self.weights = {
            tensor.name: torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
            for tensor in reader.tensors
        }
        fields = {name: entry.contents() for name, entry in reader.fields.items()}
        self.layer_count = fields["llama.block_count"]
        self.kv_heads = fields["llama.attention.head_count_kv"]
        self.epsilon = fields["llama.attention.layer_norm_rms_epsilon"]
        self.head_size = fields["llama.embedding_length"] // fields["llama.attention.head_count"]
        pairs = torch.arange(0, self.head_size, 2) / self.head_size
        self.frequencies = fields["llama.rope.freq_base"] ** -pairs
        self.end_token = fields["tokenizer.ggml.eos_token_id"]
        shape = self.layer_count, block_count * BLOCK_SIZE, self.kv_heads, self.head_size
        self.keys, self.values = torch.zeros(shape), torch.zeros(shape)

    def product(self, x: Tensor, name: str) -> Tensor:
        return x @ self.weights[name + ".weight"].T

    def norm(self, x: Tensor, name: str) -> Tensor:
        return rms_norm(x, x.shape[-1:], self.weights[name + ".weight"], self.epsilon)

    def rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotate pairs of neighbours by their position (RoPE)."""
        angle = positions[:, None, None] * self.frequencies
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)

    def attention(self, layer: int, query: Tensor, start: int, slots: Tensor) -> Tensor:
        """Attend from queries [T, heads, size] at `start`, ... to their sequence's slots so far."""
        is_past = torch.arange(len(slots)) <= start + torch.arange(len(query))[:, None]
        parts = query, self.keys[layer, slots], self.values[layer, slots]
        by_head = (part.transpose(0, 1) for part in parts)
        mixed = scaled_dot_product_attention(*by_head, attn_mask=is_past, enable_gqa=True)
        return mixed.transpose(0, 1)

    @torch.inference_mode()
    def forward(self, row: "Row") -> Tensor:
        """Write a row's keys and values into the pages; return its logits [T, vocab]."""
        stop = row.start + len(row.tokens)
        positions, slots = torch.arange(row.start, stop), row.sequence.slots(stop)
        x = self.weights["token_embd.weight"][row.tokens]
        for layer in range(self.layer_count):
            prefix = f"blk.{layer}."
            h = self.norm(x, prefix + "attn_norm")
            projected = (self.product(h, f"{prefix}attn_{part}") for part in "qkv")
            query, key, value = (x.unflatten(-1, (-1, self.head_size)) for x in projected)
            self.keys[layer, slots[row.start :]] = self.rotated(key, positions)
            self.values[layer, slots[row.start :]] = value
            mixed = self.attention(layer, self.rotated(query, positions), row.start, slots)
            x = x + self.product(mixed.flatten(1), prefix + "attn_output")
            h = self.norm(x, prefix + "ffn_norm")
            gate, up = (self.product(h, f"{prefix}ffn_{part}") for part in ("gate", "up"))
            x = x + self.product(silu(gate) * up, prefix + "ffn_down")
        is_tied = "output.weight" not in self.weights
        return self.product(self.norm(x, "output_norm"), "token_embd" if is_tied else "output")


# --- 2. The cache: blocks with holders and names, and sequences that hold them --------------------
class Blocks:
    """Blocks of keys and values; a text finds the full blocks of its beginning by name."""

    def __init__(self, count: int) -> None:
        self.free = deque(range(count))
        self.holders = [0] * count
        self.by_name: dict[bytes, int] = {}

    def take(self) -> int | None:
        """Return a free block for new content, the longest unused one first."""
        if not self.free:
            return None
        block = self.free.popleft()
        self.by_name = {name: other for name, other in self.by_name.items() if other != block}
        self.holders[block] = 1
        return block

    def hold(self, block: int) -> None:
        if not self.holders[block]:
            self.free.remove(block)  # nobody holds it, but its content is still there
        self.holders[block] += 1

    def drop(self, block: int) -> None:
        self.holders[block] -= 1
        if not self.holders[block]:
            self.free.append(block)


def block_names(tokens: list[int]) -> list[bytes]:
    """Name full blocks by everything up to their end: a hash of their tokens and parent's name."""
    names, parent = list[bytes](), b""
    for stop in range(BLOCK_SIZE, len(tokens) + 1, BLOCK_SIZE):
        parent = sha256(parent + repr(tokens[stop - BLOCK_SIZE : stop]).encode()).digest()
        names.append(parent)
    return names


@dataclass(eq=False)
class Sequence:
    """A text that is decoded.

    tokens   0 ........ prompt_count ........ computed ........ len(tokens)
             |  the prompt  |        generated        |  to be computed  |
    """

    tokens: list[int]
    sampling: Sampling
    tokens_max: int
    drafts: bool = True
    computed: int = 0
    block_table: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        self.tokens, self.prompt_count = list(self.tokens), len(self.tokens)

    def slots(self, stop: int) -> Tensor:
        """Return where tokens 0 ... stop have their keys and values in the pages."""
        offsets = torch.arange(BLOCK_SIZE)
        return (torch.tensor(self.block_table)[:, None] * BLOCK_SIZE + offsets).flatten()[:stop]


@dataclass
class Row:
    """A sequence's part of a round: tokens to compute from `start` on, the last ones drafted."""

    sequence: Sequence
    start: int
    tokens: list[int]
    draft: list[int]


# --- 3. Drafting and verification: the idea -------------------------------------------------------
def propose(tokens: list[int], count: int) -> list[int]:
    """Guess that what followed the last two tokens before will follow them again."""
    for start in range(len(tokens) - 3, -1, -1):
        if tokens[start : start + 2] == tokens[-2:]:
            return tokens[start + 2 : start + 2 + count]
    return []


def verify(logits: Tensor, row: Row) -> list[int]:
    """Return the model's own tokens, as far as the draft was right, and one token more.

    The model with a seed has one answer at each position. A drafted token is compared with it, and
    never trusted: so the text does not depend on drafts, only the number of rounds does.
    """
    position, committed = row.start + len(row.tokens) - len(row.draft), list[int]()
    for scores, drafted in zip(logits[-len(row.draft) - 1 :], [*row.draft, None], strict=True):
        answer = choose(scores.tolist(), position + len(committed), row.sequence.sampling)
        committed.append(answer)
        if answer != drafted:
            break
    return committed


# --- 4. The engine: which rows, with which tokens, in which blocks --------------------------------
class Engine:
    def __init__(self, model: Model, block_count: int) -> None:
        self.model, self.blocks = model, Blocks(block_count)
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.round_count = 0

    def run(self, sequences: list[Sequence]) -> list[list[int]]:
        """Decode sequences together; return the generated tokens of each."""
        self.waiting.extend(sequences)
        while self.waiting or self.running:
            rows = self.plan()
            # One by one, so that a row's sums are the same in any company.
            for row, logits in [(row, self.model.forward(row)) for row in rows]:
                self.commit(row, logits)
            self.round_count += 1
        return [sequence.tokens[sequence.prompt_count :] for sequence in sequences]

    def plan(self) -> list[Row]:
        """Give every text that decodes a token and its draft, and every prompt a chunk."""
        while self.waiting:
            self.admit(self.waiting.popleft())
        rows, left = list[Row](), ROUND_TOKENS
        for sequence in list(self.running):
            start = sequence.computed
            known = sequence.tokens[start : start + left]
            decodes = start + len(known) == len(sequence.tokens)
            room = min(DRAFT_MAX, left - len(known)) if decodes and sequence.drafts else 0
            draft = propose(sequence.tokens, room) if room else []
            stop = start + len(known) + len(draft)
            if known and sequence in self.running and self.reserve(sequence, stop):
                rows.append(Row(sequence, start, known + draft, draft))
                left -= stop - start
        return [row for row in rows if row.sequence in self.running]

    def admit(self, sequence: Sequence) -> None:
        """Run a sequence behind the longest prefix whose blocks are there."""
        for name in block_names(sequence.tokens[:-1]):  # the last token is always computed
            if (block := self.blocks.by_name.get(name)) is None:
                break
            self.blocks.hold(block)
            sequence.block_table.append(block)
        sequence.computed = len(sequence.block_table) * BLOCK_SIZE
        self.running.append(sequence)

    def reserve(self, sequence: Sequence, stop: int) -> bool:
        """Take blocks for slots below `stop`; without a free one the last sequence gives way."""
        while len(sequence.block_table) * BLOCK_SIZE < stop:
            while (block := self.blocks.take()) is None:
                preempted = self.running.pop()
                self.leave(preempted)
                self.waiting.appendleft(preempted)
                if preempted is sequence:
                    return False
            sequence.block_table.append(block)
        return True

    def commit(self, row: Row, logits: Tensor) -> None:
        """Append what the model answered, name the blocks that are full, and see who has ended."""
        sequence, known_stop = row.sequence, row.start + len(row.tokens) - len(row.draft)
        is_end = False
        if known_stop == len(sequence.tokens):
            for token in verify(logits, row):
                sequence.tokens.append(token)
                length = len(sequence.tokens) - sequence.prompt_count
                if is_end := token == self.model.end_token or length == sequence.tokens_max:
                    break
        # Of the draft, slots hold what was accepted; the last token is not computed yet.
        sequence.computed = min(row.start + len(row.tokens), len(sequence.tokens) - 1)
        for index, name in enumerate(block_names(sequence.tokens[: sequence.computed])):
            self.blocks.by_name.setdefault(name, sequence.block_table[index])
        if is_end:
            self.running.remove(sequence)
            self.leave(sequence)

    def leave(self, sequence: Sequence) -> None:
        """Give a sequence's blocks back, the end first: beginnings are found again for longer."""
        for block in reversed(sequence.block_table):
            self.blocks.drop(block)
        sequence.block_table, sequence.computed = [], 0


if __name__ == "__main__":
    model, prompt = Model(sys.argv[1], block_count=64), [*map(int, sys.argv[2:])]
    for drafts in (True, False):
        engine = Engine(model, block_count=64)
        texts = engine.run([Sequence(prompt, Sampling(temperature=0.8, seed=7), 24, drafts)])
        print(texts, engine.round_count, "rounds")
