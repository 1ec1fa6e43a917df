"""Tiny Gemma 4 models and their assistants, both of Transformers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from transformers.models.gemma4.configuration_gemma4 import Gemma4TextConfig
from transformers.models.gemma4_assistant.modeling_gemma4_assistant import (
    Gemma4AssistantForCausalLM,
)

from tests.support.tiny_models import random_model, save_tiny

HEAD = "assistant"
"""The folder in the target's."""
CLUSTERS = {
    **{"use_ordered_embeddings": True, "num_centroids": 12, "centroid_intermediate_top_k": 3},
}


class AssistantOracle:
    """A target and its assistant; every parameter is random."""

    def __init__(
        self, directory: Path, ordered: bool = False, seed: int = 0, **changes: Any
    ) -> None:
        """Save them, the assistant in a folder of the target's."""
        self.path = directory / "model.safetensors"
        sizes = {"vocab_size": 96, **changes} if ordered else changes
        own = {"final_logit_softcapping": None, "tie_word_embeddings": False, **sizes}
        if "vocab_size" in sizes:
            own["vocab_size_per_layer_input"] = sizes["vocab_size"]
        self.target = save_tiny(directory, "gemma4_text", seed, **own)
        of = self.target.config
        narrow, wide = of.per_layer_config[0], of.per_layer_config[1]
        text = Gemma4TextConfig(
            **{"vocab_size": of.vocab_size, "hidden_size": of.hidden_size},
            **{"intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4},
            **{"num_key_value_heads": narrow.num_key_value_heads, "head_dim": narrow.head_dim},
            **{"global_head_dim": wide.head_dim, "sliding_window": of.sliding_window},
            **{"layer_types": ["sliding_attention", "sliding_attention", "full_attention"]},
            **{"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0},
            **{"max_position_embeddings": of.max_position_embeddings},
        )
        said: dict[str, Any] = {"text_config": text, "backbone_hidden_size": of.hidden_size}
        said |= CLUSTERS if ordered else {}
        # The property refuses a model whose layers all read another's keys.
        modes = property(lambda config: ["reuse"] * config.num_hidden_layers)
        with patch.object(Gemma4TextConfig, "kv_sharing_modes", modes):
            self.assistant: Any = random_model(Gemma4AssistantForCausalLM, said, seed + 1)
        self.clusters: Any = self.assistant.masked_embedding
        if ordered:
            order = torch.randperm(of.vocab_size, generator=torch.Generator().manual_seed(3))
            self.clusters.token_ordering.copy_(order)
        with torch.no_grad():
            self.target.lm_head.weight *= 3
            self.assistant.lm_head.weight *= 3
        self.save()

    @torch.no_grad()
    def make_right(self, share: float) -> None:
        """Have a token follow from the one before, by a permutation, and the assistant guess so.

        What layers add counts for a `share`: of enough, guesses are wrong at times. It is normed
        before, so that it takes more than elsewhere.
        """
        for model in (self.target, self.assistant):
            for name, value in model.named_parameters():
                if "layers." in name and ".post_" in name:
                    value *= 10 * share
            for name, value in model.named_buffers():
                if name.endswith("layer_scalar"):
                    value.fill_(1.0)
            model.model.norm.weight.fill_(1.0)
        embedding = self.target.get_input_embeddings().weight
        embedding /= embedding.norm(dim=-1, keepdim=True)
        followers = torch.randperm(len(embedding), generator=torch.Generator().manual_seed(5))
        self.target.lm_head.weight[followers] = 4 * embedding
        hidden = embedding.shape[1]
        self.assistant.lm_head.weight.copy_(self.target.lm_head.weight)
        self.assistant.pre_projection.weight.copy_(torch.eye(hidden, 2 * hidden))
        self.save()

    def save(self) -> None:
        """Write both with what the modules hold."""
        self.target.save_pretrained(self.path.parent)
        self.assistant.save_pretrained(self.path.parent / HEAD)

    @torch.no_grad()
    def states(self, tokens: Sequence[int]) -> Tensor:
        """Return what the target's head reads of each token."""
        return self.target.model(torch.tensor([list(tokens)])).last_hidden_state[0]

    @torch.no_grad()
    def guesses(self, tokens: Sequence[int], states: Tensor, count: int) -> list[Tensor]:
        """Return logits of the tokens that follow, as `generate` has them, fed its own best.

        `states` are the target's of all tokens but the last. Of keys with a window as many are
        given as the window has.
        """
        read = self.target.model(torch.tensor([list(tokens[:-1])]), return_shared_kv_states=True)
        shared, window = dict(read.shared_kv_states), self.target.config.sliding_window
        own = tuple(each[:, :, -window:] for each in shared["sliding_attention"])
        shared["sliding_attention"] = own
        said, state, found = tokens[-1], states[-1][None, None], list[Tensor]()
        for _ in range(count):
            embedded = self.target.get_input_embeddings()(torch.tensor([[said]]))
            answer = self.assistant(
                inputs_embeds=torch.cat([embedded, state], -1),
                position_ids=torch.tensor([[len(tokens) - 1]]),
                shared_kv_states=shared,
            )
            found.append(answer.logits[0, -1])
            state, said = answer.last_hidden_state, int(found[-1].argmax())
        return found
