"""A DFlash drafter in training: the network that `model.step.layer_heads.block_layers` serves.

Some blocks of a text are read at once. A block begins at its anchor, a token of the text, and goes
on with masks; its tokens see the text before the anchor, and each other.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu


class _Norm(nn.RMSNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.float())


class _Attention(nn.Module):
    def __init__(self, said: dict[str, Any]) -> None:
        super().__init__()
        hidden, size = said["hidden_size"], said["head_dim"]
        queries, keys = (said[f"num_{name}_heads"] * size for name in ("attention", "key_value"))
        self.q_proj = nn.Linear(hidden, queries, bias=False)
        self.k_proj = nn.Linear(hidden, keys, bias=False)
        self.v_proj = nn.Linear(hidden, keys, bias=False)
        self.o_proj = nn.Linear(queries, hidden, bias=False)
        self.q_norm, self.k_norm = (_Norm(size, said["rms_norm_eps"]) for _ in range(2))

    def forward(self, normed: Tensor, context: Tensor, turns: Tensor, seen: Tensor) -> Tensor:
        """Return what rows [n, H] take from a context [L, H] and each other.

        `turns` [L + n, D / 2] complex, `seen` [n, L + n].
        """
        size = self.q_norm.normalized_shape[0]
        read = torch.cat([context, normed])
        query, key, value = (
            project(rows).unflatten(1, (-1, size)).transpose(0, 1)
            for project, rows in ((self.q_proj, normed), (self.k_proj, read), (self.v_proj, read))
        )
        query = _turned(self.q_norm(query), turns[len(context) :])
        key = _turned(self.k_norm(key), turns)
        found = scaled_dot_product_attention(
            query, key, value.to(key.dtype), attn_mask=seen, enable_gqa=True
        )
        return self.o_proj(found.transpose(0, 1).flatten(1))


class _FeedForward(nn.Module):
    def __init__(self, said: dict[str, Any]) -> None:
        super().__init__()
        hidden, inner = said["hidden_size"], said["intermediate_size"]
        self.gate_proj, self.up_proj = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, normed: Tensor) -> Tensor:
        return self.down_proj(silu(self.gate_proj(normed)) * self.up_proj(normed))


class _Layer(nn.Module):
    def __init__(self, said: dict[str, Any]) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = (
            _Norm(said["hidden_size"], said["rms_norm_eps"]) for _ in range(2)
        )
        self.self_attn, self.mlp = _Attention(said), _FeedForward(said)

    def forward(self, hidden: Tensor, context: Tensor, turns: Tensor, seen: Tensor) -> Tensor:
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), context, turns, seen)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class BlockStudent(nn.Module):
    """The drafter that a configuration describes; its parameters are named as in its file."""

    def __init__(self, said: dict[str, Any]) -> None:
        super().__init__()
        self.said, hidden = said, said["hidden_size"]
        self.fc = nn.Linear(len(said["dflash_config"]["target_layer_ids"]) * hidden, hidden, False)
        self.hidden_norm, self.norm = (_Norm(hidden, said["rms_norm_eps"]) for _ in range(2))
        self.layers = nn.ModuleList(_Layer(said) for _ in range(said["num_hidden_layers"]))

    def forward(self, states: Tensor, anchors: Tensor, embedded: Tensor) -> Tensor:
        """Return what the tokens of blocks come to [n, block, H].

        `states` [L, taps * H] are the target's of a text, `anchors` [n] places in it, `embedded`
        [n, block, H] the blocks' tokens.
        """
        count, block = embedded.shape[:2]
        context = self.hidden_norm(self.fc(states))
        places = torch.arange(len(states), device=states.device)
        own = anchors[:, None] + torch.arange(block, device=states.device)
        before = (places < anchors[:, None]).repeat_interleave(block, 0)
        same = torch.eye(count, dtype=torch.bool, device=states.device)
        seen = torch.cat([before, same.repeat_interleave(block, 0).repeat_interleave(block, 1)], 1)
        turns, hidden = self._turns(torch.cat([places, own.flatten()])), embedded.flatten(0, 1)
        for layer in self.layers:
            hidden = layer(hidden, context, turns, seen)
        return self.norm(hidden).view(count, block, -1)

    def _turns(self, positions: Tensor) -> Tensor:
        half = self.said["head_dim"] // 2
        speeds = self.said["rope_theta"] ** (-torch.arange(half, device=positions.device) / half)
        angles = positions[:, None] * speeds
        return torch.polar(torch.ones_like(angles), angles)

    def write(self, folder: Path) -> None:
        """Write the drafter as `--draft-head` reads it."""
        tensors = {
            name: value.detach().to("cpu", torch.bfloat16).contiguous()
            for name, value in self.state_dict().items()
        }
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        (folder / "config.json").write_text(json.dumps(self.said, indent=1), encoding="utf-8")


def _turned(heads: Tensor, turns: Tensor) -> Tensor:
    """Return heads [n, T, D], each pair of numbers turned by its position's angle."""
    first, second = heads.float().chunk(2, -1)
    found = torch.complex(first, second) * turns
    return torch.cat([found.real, found.imag], -1)
