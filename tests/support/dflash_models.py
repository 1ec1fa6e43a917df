"""Tiny targets with a DFlash drafter in a folder, and its published definition as a plain loop."""

import json
from collections.abc import Sequence
from math import cos, pi, sin
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.support.tiny_models import save_tiny

HEAD = "dflash"
"""The folder in the target's."""
LAYERS, BLOCK, MASK = 6, 7, 96
"""Of a target; tokens of a block; the token that stands for what is not known."""
ENDS_OF_PARTS = (
    *("o_proj.weight", "o_proj.bias", "linear_attn.out_proj.weight"),
    *("down_proj.weight", "down_proj", "down_proj_bias"),
)
"""Parameters of targets, by which what parts of layers add is multiplied."""
PERIOD = 4
"""Of planted texts."""
SECOND = {
    **{"conv_kernel_size": 2, "conv_group_size": 8, "selector_rank": 5, "selector_top_k": 6},
    **{"input_embedding_scale": 1.5, "output_multiplier": 0.5, "final_logit_softcapping": 30.0},
}
"""What a DFlash 2 says beside."""
DEEP: dict[str, dict[str, Any]] = {
    "qwen3_5_text": {"layer_types": ["linear_attention", "full_attention"] * 3},
    "gpt_oss": {},
}
"""What targets of so many layers say of them."""


class DFlashOracle:
    """A target of Transformers', and a drafter of plain tensors."""

    def __init__(
        self,
        directory: Path,
        family: str = "llama",
        target_layers: Sequence[int] = (0, 2, 4),
        layers: int = 2,
        sizes: dict[str, Any] | None = None,
        second: dict[str, Any] | None = None,
        **said: Any,
    ) -> None:
        """Save them; every parameter is random, and logits are far apart.

        `said` is what the drafter's config says beside its usual fields: `layer_types`, say.
        """
        self.path = directory / "model.safetensors"
        own = {"num_hidden_layers": LAYERS, **DEEP.get(family, {}), **(sizes or {})}
        self.target: Any = save_tiny(directory, family, **own)
        with torch.no_grad():
            self.target.lm_head.weight *= 10
        hidden = self.target.config.hidden_size
        self.target_layers, self.layers, self.heads, self.size = (
            tuple(target_layers),
            layers,
            4,
            hidden // 4,
        )
        self.said: dict[str, Any] = {
            **{"architectures": ["DFlashDraftModel"], "model_type": "qwen3"},
            **{"vocab_size": self.target.config.vocab_size, "hidden_size": hidden},
            **{"num_hidden_layers": layers, "num_target_layers": own["num_hidden_layers"]},
            **{"num_attention_heads": self.heads, "num_key_value_heads": 2},
            **{"head_dim": self.size, "intermediate_size": 48, "hidden_act": "silu"},
            **{"rms_norm_eps": 1e-5, "max_position_embeddings": 512, "rope_theta": 500.0},
            **{"block_size": BLOCK, "torch_dtype": "float32"},
            "dflash_config": {
                **{"target_layer_ids": list(target_layers), "mask_token_id": MASK},
                **(second or {}),
            },
            **said,
        }
        noise = torch.Generator().manual_seed(11)
        self.tensors = {
            name: (1.0 if "norm" in name else 0.0) + 0.3 * torch.randn(shape, generator=noise)
            for name, shape in self._shapes().items()
        }
        self.save()

    @classmethod
    def over(cls, target: Any, said: dict[str, Any], tensors: dict[str, Tensor]) -> "DFlashOracle":
        """Return the definition of a drafter that was made elsewhere."""
        found = cls.__new__(cls)
        found.target, found.said, found.tensors = target, said, tensors
        found.target_layers = tuple(said["dflash_config"]["target_layer_ids"])
        found.layers, found.heads = said["num_hidden_layers"], said["num_attention_heads"]
        found.size = said["head_dim"]
        return found

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        said, hidden = self.said, self.said["hidden_size"]
        queries, keys = (
            said[f"num_{kind}_heads"] * self.size for kind in ("attention", "key_value")
        )
        found: dict[str, tuple[int, ...]] = {
            "fc.weight": (hidden, len(self.target_layers) * hidden),
            **dict.fromkeys(("hidden_norm.weight", "norm.weight"), (hidden,)),
        }
        for index in range(self.layers):
            layer: dict[str, tuple[int, ...]] = {
                **{"self_attn.q_proj": (queries, hidden), "self_attn.o_proj": (hidden, queries)},
                **dict.fromkeys(("self_attn.k_proj", "self_attn.v_proj"), (keys, hidden)),
                **dict.fromkeys(("mlp.gate_proj", "mlp.up_proj"), (48, hidden)),
                "mlp.down_proj": (hidden, 48),
                **dict.fromkeys(("input_layernorm", "post_attention_layernorm"), (hidden,)),
            }
            if said["model_type"] == "qwen3":
                layer |= dict.fromkeys(("self_attn.q_norm", "self_attn.k_norm"), (self.size,))
            found |= {f"layers.{index}.{name}.weight": shape for name, shape in layer.items()}
        return found | self._second_shapes()

    def _second_shapes(self) -> dict[str, tuple[int, ...]]:
        own, hidden = self.said["dflash_config"], self.said["hidden_size"]
        if "selector_rank" not in own:
            return {}
        kernel_size, rank = own["conv_kernel_size"], own["selector_rank"]
        selector, tokens = "candidate_selector", (self.said["vocab_size"], rank)
        found: dict[str, tuple[int, ...]] = {
            f"{selector}.predecessor_codebook": tokens,
            f"{selector}.successor_codebook": tokens,
            f"{selector}.hidden_projection.weight": (rank, hidden),
        }
        for index in range(self.layers):
            for name in ("attention_conv", "mlp_conv"):
                conv = f"layers.{index}.{name}"
                rows = 2 * kernel_size * hidden // own["conv_group_size"]
                found[f"{conv}.base_kernel"] = (2, kernel_size, hidden)
                found[f"{conv}.kernel_projection.weight"] = (rows, hidden)
        return found

    @torch.no_grad()
    def make_right(self, share: float) -> None:
        """Have greedy texts repeat themselves, and the drafter guess so from what was before.

        A token follows from the one before, by a permutation that comes round after some steps.
        Masks attend to the position whose token stands before theirs in the last round: a pair of
        each head turns once a round. What the target's layers add counts for a `share`.
        """
        for name, value in self.target.named_parameters():
            if name.endswith(ENDS_OF_PARTS):
                value *= share
        embedding = self.target.get_input_embeddings().weight
        vocabulary, hidden = embedding.shape
        noise = torch.Generator().manual_seed(5)
        values = torch.randn(vocabulary, hidden - 2, generator=noise)
        embedding.copy_(torch.cat([torch.zeros(vocabulary, 2), values], 1))
        embedding[:, 2:] /= embedding[:, 2:].norm(dim=-1, keepdim=True)
        embedding[:, 0], embedding[MASK] = 1.0, 0.0
        embedding[MASK, 1] = 1.0
        tokens = torch.randperm(vocabulary - 1, generator=noise)
        tokens += tokens >= MASK
        tokens = tokens[: len(tokens) // PERIOD * PERIOD].view(-1, PERIOD)
        followers = torch.arange(vocabulary)
        followers[tokens] = tokens.roll(-1, 1)
        self.target.lm_head.weight[followers] = 8 * embedding
        self.target.model.norm.weight.fill_(1.0)
        self.said |= {"num_key_value_heads": self.heads, "rope_theta": 1e30}
        self.said |= {"layer_types": ["sliding_attention"] * self.layers}
        self.said |= {"sliding_window": BLOCK + PERIOD, "use_sliding_window": True}
        self.said["rope_scaling"] = {"rope_type": "linear", "factor": PERIOD / (2 * pi)}
        self.tensors = {
            name: torch.ones(shape) if "norm" in name else torch.zeros(shape)
            for name, shape in self._shapes().items()
        }
        for name, value in self.tensors.items():
            if name.endswith(("q_norm.weight", "k_norm.weight")):
                value *= 5
            if name.endswith("base_kernel"):  # a token alone
                value[:, 0] = 1.0
        self.tensors["fc.weight"][:, :hidden] = torch.eye(hidden)
        turn = -2 * pi / PERIOD
        for head in range(self.heads):
            row = head * self.size
            layer = "layers.0.self_attn."
            self.tensors[f"{layer}k_proj.weight"][row, 0] = 10.0
            self.tensors[f"{layer}q_proj.weight"][row, 1] = 10.0 * cos(turn)
            self.tensors[f"{layer}q_proj.weight"][row + self.size // 2, 1] = 10.0 * sin(turn)
        self.tensors["layers.0.self_attn.v_proj.weight"].copy_(torch.eye(hidden))
        self.tensors["layers.0.self_attn.o_proj.weight"].copy_(10 * torch.eye(hidden))
        self.save()

    def save(self) -> None:
        """Write the model, and the drafter's folder in its own."""
        self.target.save_pretrained(self.path.parent)
        folder = self.path.parent / HEAD
        folder.mkdir(exist_ok=True)
        save_file(self.tensors, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(self.said), encoding="utf-8")

    @torch.no_grad()
    def states(self, tokens: Sequence[int]) -> Tensor:
        """Return what some of the target's layers come to, side by side, one token at a time."""
        found, past = list[Tensor](), None
        for token in tokens:
            answer = self.target.model(
                torch.tensor([[token]]),
                past_key_values=past,
                use_cache=True,
                output_hidden_states=True,
            )
            past = answer.past_key_values
            found.append(
                torch.cat([answer.hidden_states[layer + 1][0] for layer in self.target_layers], -1)
            )
        return torch.cat(found)

    @torch.no_grad()
    def guesses(
        self, tokens: Sequence[int], states: Tensor, count: int, before: Sequence[int] = ()
    ) -> list[Tensor]:
        """Return logits of the first masks of the block behind these tokens.

        `states` are the target's of all tokens but the last; of a DFlash 2 `before` are the tokens
        before each mask.
        """
        own = self.said["dflash_config"]
        block = [tokens[-1], *[own["mask_token_id"]] * (BLOCK - 1)]
        hidden = self.target.get_input_embeddings()(torch.tensor(block))
        hidden = hidden * own.get("input_embedding_scale", 1.0)
        context = self._normed(states @ self.tensors["fc.weight"].T, "hidden_norm.weight")
        for index in range(self.layers):
            hidden = self._layer(index, hidden, context)
        hidden = self._normed(hidden, "norm.weight")[1 : 1 + count]
        logits = self.target.lm_head(hidden)
        if "selector_rank" in own:
            return [self._selected(*each) for each in zip(hidden, logits, before, strict=True)]
        return list(logits)

    def _selected(self, hidden: Tensor, logits: Tensor, before: int) -> Tensor:
        """Return the scores of the best tokens behind one; those of all others are none."""
        own = self.said["dflash_config"]
        cap = own["final_logit_softcapping"]
        logits = (logits * own["output_multiplier"] / cap).tanh() * cap
        names = ("predecessor_codebook", "successor_codebook", "hidden_projection.weight")
        before_, behind, gate = (self.tensors[f"candidate_selector.{name}"] for name in names)
        found = torch.full_like(logits, -torch.inf)
        for token in logits.topk(own["selector_top_k"]).indices.tolist():
            edge = (before_[before] * (gate @ hidden) * behind[token]).sum()
            found[token] = logits[token] + edge
        return found

    def _convolved(self, name: str, side: int, normed: Tensor, rows: Tensor) -> Tensor:
        """Return rows mixed with those before them, a token and a channel at a time."""
        own = self.said["dflash_config"]
        kernel_size, width = own["conv_kernel_size"], own["conv_group_size"]
        base = self.tensors[f"{name}.base_kernel"]
        deltas = normed @ self.tensors[f"{name}.kernel_projection.weight"].T
        deltas = deltas.view(len(rows), 2, kernel_size, -1)
        found = torch.zeros_like(rows)
        for token in range(len(rows)):
            for channel in range(rows.shape[1]):
                for tap in range(min(kernel_size, token + 1)):
                    delta = deltas[token, side, tap, channel // width]
                    kernel = base[side, tap, channel] + delta
                    found[token, channel] += kernel * rows[token - tap, channel]
        return found

    def _layer(self, index: int, hidden: Tensor, context: Tensor) -> Tensor:
        name = f"layers.{index}."

        def attend(rows: Tensor) -> Tensor:
            attended = self._attention(index, rows, context)
            return attended @ self.tensors[f"{name}self_attn.o_proj.weight"].T

        def feed(rows: Tensor) -> Tensor:
            gate, up = (
                rows @ self.tensors[f"{name}mlp.{kind}_proj.weight"].T for kind in ("gate", "up")
            )
            down = self.tensors[f"{name}mlp.down_proj.weight"]
            return (torch.nn.functional.silu(gate) * up) @ down.T

        for norm, conv, part in (
            ("input_layernorm", "attention_conv", attend),
            ("post_attention_layernorm", "mlp_conv", feed),
        ):
            normed = self._normed(hidden, f"{name}{norm}.weight")
            if f"{name}{conv}.base_kernel" in self.tensors:
                mixed = self._convolved(f"{name}{conv}", 0, normed, normed)
                hidden = hidden + self._convolved(f"{name}{conv}", 1, normed, part(mixed))
            else:
                hidden = hidden + part(normed)
        return hidden

    def _attention(self, index: int, normed: Tensor, context: Tensor) -> Tensor:
        """Attend a token and a head at a time."""
        read, before = torch.cat([context, normed]), len(context)
        heads = {
            kind: self._heads(index, kind, rows, first)
            for kind, rows, first in (("q", normed, before), ("k", read, 0), ("v", read, 0))
        }
        types = self.said.get("layer_types") or ["full_attention"] * self.layers
        slides = types[index] == "sliding_attention"
        causal = self.said["dflash_config"].get("causal", slides)
        found = torch.zeros(len(normed), self.heads * self.size)
        shared = self.heads // self.said["num_key_value_heads"]
        for token in range(len(normed)):
            place = before + token
            seen = [
                other
                for other in range(len(read))
                if (other <= place or not causal)
                and (not slides or abs(other - place) < self.said["sliding_window"])
            ]
            for head in range(self.heads):
                keys, values = (heads[kind][seen, head // shared] for kind in ("k", "v"))
                scores = keys @ heads["q"][token, head] / self.size**0.5
                own = slice(head * self.size, (head + 1) * self.size)
                found[token, own] = scores.softmax(0) @ values
        return found

    def _heads(self, index: int, kind: str, rows: Tensor, first: int) -> Tensor:
        """Return queries, keys or values [n, heads, size], turned by their positions."""
        name = f"layers.{index}.self_attn.{kind}"
        heads = (rows @ self.tensors[f"{name}_proj.weight"].T).unflatten(1, (-1, self.size))
        if kind == "v":
            return heads
        if f"{name}_norm.weight" in self.tensors:
            heads = self._normed(heads, f"{name}_norm.weight")
        half = self.size // 2
        factor = (self.said.get("rope_scaling") or {"factor": 1.0})["factor"]
        speeds = self.said["rope_theta"] ** (-torch.arange(half).double() / half) / factor
        angles = torch.arange(first, first + len(rows)).double()[:, None, None] * speeds
        turned = torch.polar(torch.ones_like(angles), angles)
        turned = torch.complex(heads[..., :half].double(), heads[..., half:].double()) * turned
        return torch.cat([turned.real, turned.imag], -1).float()

    def _normed(self, values: Tensor, name: str) -> Tensor:
        mean = values.pow(2).mean(-1, keepdim=True)
        return values * torch.rsqrt(mean + self.said["rms_norm_eps"]) * self.tensors[name]
