"""Tiny targets with an EAGLE-3 head in a folder, and the published formula in Llama's modules."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaAttention,
    LlamaMLP,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)

from tests.support.tiny_models import save_tiny

HEAD = "eagle"
LAYERS = 7
"""Of a target: the fewest of which the default's three are three."""
GUESSED = 71
"""Tokens of the head's vocabulary."""


class EagleModules(nn.Module):
    """The head, by the names that files have."""

    def __init__(self, config: Any, target_hidden: int, guessed: int) -> None:
        super().__init__()
        hidden, heads = config.hidden_size, config.head_dim
        self.fc = nn.Linear(3 * target_hidden, hidden, bias=False)
        layer: Any = nn.Module()
        layer.self_attn = LlamaAttention(config, 0)
        for name, count in (("q", config.num_attention_heads), ("k", config.num_key_value_heads)):
            wide = nn.Linear(2 * hidden, count * heads, bias=False)
            setattr(layer.self_attn, f"{name}_proj", wide)
        value = nn.Linear(2 * hidden, config.num_key_value_heads * heads, bias=False)
        layer.self_attn.v_proj = value
        layer.mlp = LlamaMLP(config)
        for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm"):
            setattr(layer, name, LlamaRMSNorm(hidden, config.rms_norm_eps))
        self.midlayer: Any = layer
        self.norm: Any = LlamaRMSNorm(hidden, config.rms_norm_eps)
        self.lm_head = nn.Linear(hidden, guessed, bias=False)


class EagleOracle:
    """A target and its head, both of Transformers' modules."""

    def __init__(
        self,
        directory: Path,
        family: str = "llama",
        guessed: int = GUESSED,
        sizes: Mapping[str, int] = MappingProxyType({}),
        **said: Any,
    ) -> None:
        """Save them; every parameter is random, and logits are far apart.

        `sizes` are the target's, `said` is what the head's config says beside its layer.
        """
        self.path, self.said = directory / "model.safetensors", said
        self.target = save_tiny(directory, family, num_hidden_layers=LAYERS, **sizes)
        with torch.no_grad():
            self.target.lm_head.weight *= 10
        hidden = self.target.config.hidden_size
        self.vocab = len(self.target.get_input_embeddings().weight)
        layer: dict[str, Any] = {
            **{"vocab_size": self.vocab, "hidden_size": hidden, "intermediate_size": 48},
            **{"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4},
            **{"max_position_embeddings": 512, "rope_theta": 500.0},
            "attn_implementation": "eager",
        }
        self.config = LlamaConfig(**layer)
        torch.manual_seed(7)
        self.head = EagleModules(self.config, hidden, guessed)
        self.rotary = LlamaRotaryEmbedding(self.config)
        for name, value in self.head.named_parameters():
            nn.init.normal_(value, 1.0 if "norm" in name else 0.0, 0.3)
        behind = said.get("eagle_config", {}).get("eagle_aux_hidden_state_layer_ids")
        default = 2, LAYERS // 2, LAYERS - 3
        self.layers = [layer + 1 for layer in behind] if behind else default
        self.vocabulary = torch.randperm(self.vocab)[:guessed].sort().values
        self.save()

    @torch.no_grad()
    def make_right(self, share: float) -> None:
        """Have a token follow from the one before, by a permutation, and the head guess so.

        What the target's layers add counts for a `share`. The head attends to the token that was
        said, by its embedding, and gives its value.
        """
        for name, value in self.target.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                value *= share
        noise = torch.Generator().manual_seed(5)
        embedding = self.target.get_input_embeddings().weight
        hidden = embedding.shape[1]
        heads = torch.randn(self.vocab, 4, hidden // 4, generator=noise)
        embedding.copy_(0.5 * (heads / heads.norm(dim=-1, keepdim=True)).flatten(1))
        followers = torch.randperm(self.vocab, generator=noise)
        self.target.lm_head.weight[followers] = 4 * embedding
        self.target.model.norm.weight.fill_(1.0)
        layer, own = self.head.midlayer, torch.eye(hidden, 2 * hidden)
        for name, factor in (("q_proj", 20.0), ("k_proj", 20.0), ("v_proj", 1.0)):
            getattr(layer.self_attn, name).weight.copy_(factor * own)
        layer.self_attn.o_proj.weight.copy_(10 * torch.eye(hidden))
        layer.mlp.down_proj.weight *= 0.01
        for norm in (layer.input_layernorm, self.head.norm):
            norm.weight.fill_(1.0)
        self.said |= {"norm_before_residual": True}
        layer.hidden_norm.weight.fill_(0.05)
        self.head.lm_head.weight.copy_(self.target.lm_head.weight[self.vocabulary])
        self.save()

    def save(self) -> None:
        """Write the model, and the head's folder in its own."""
        self.target.save_pretrained(self.path.parent)
        folder = self.path.parent / HEAD
        folder.mkdir(exist_ok=True)
        parts = dict(self.head.state_dict())
        parts["d2t"] = self.vocabulary - torch.arange(len(self.vocabulary))
        parts["t2d"] = torch.zeros(self.vocab, dtype=torch.bool)
        save_file(
            {name: value.contiguous() for name, value in parts.items()},
            folder / "model.safetensors",
        )
        hf = self.config.to_dict() | {"architectures": ["LlamaForCausalLMEagle3"]}
        hf |= {"draft_vocab_size": len(self.vocabulary), **self.said}
        (folder / "config.json").write_text(json.dumps(hf), encoding="utf-8")

    @torch.no_grad()
    def states(self, tokens: Sequence[int]) -> Tensor:
        """Return the hidden states before three layers, side by side, of each token."""
        answer = self.target.model(torch.tensor([list(tokens)]), output_hidden_states=True)
        return torch.cat([answer.hidden_states[layer][0] for layer in self.layers], -1)

    @torch.no_grad()
    def guesses(self, tokens: Sequence[int], states: Tensor, count: int) -> list[Tensor]:
        """Return logits of the tokens that follow: `count` steps of the layer, fed its own best.

        `states` are the target's of all tokens but the last. Tokens outside the head's vocabulary
        have -inf.
        """
        read, said, found = self.head.fc(states), list(tokens[1:]), list[Tensor]()
        for _ in range(count):
            after = self._layer(read, torch.tensor(said))[-1:]
            logits = torch.full((self.vocab,), float("-inf"))
            logits[self.vocabulary] = self.head.lm_head(self.head.norm(after))[0]
            found.append(logits)
            read = torch.cat([read, after])
            said.append(int(logits.argmax()))
        return found

    def _layer(self, read: Tensor, said: Tensor) -> Tensor:
        layer = self.head.midlayer
        before = layer.hidden_norm(read)
        embedded = layer.input_layernorm(self.target.get_input_embeddings()(said))
        count = len(said)
        turns = self.rotary(read, torch.arange(count)[None])
        mask = torch.full((count, count), float("-inf")).triu(1)[None, None]
        inputs = torch.cat([embedded, before], -1)[None]
        attended, _ = layer.self_attn(inputs, position_embeddings=turns, attention_mask=mask)
        residual = before if self.said.get("norm_before_residual") else read
        mixed = residual + attended[0]
        return mixed + layer.mlp(layer.post_attention_layernorm(mixed))
