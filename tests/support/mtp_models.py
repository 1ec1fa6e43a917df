"""Tiny checkpoints with an MTP layer, and the published formula in modules of Transformers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import linear
from transformers import PreTrainedModel

from tests.support.tiny_models import save_tiny, tiny_model

WEIGHTS = "model.safetensors"


class MtpOracle:
    """A target and its MTP layer, both of Transformers."""

    def __init__(
        self, directory: Path, family: str = "qwen3_5_text", seed: int = 0, **changes: Any
    ) -> None:
        """Save them as one checkpoint; every parameter is random, and logits are far apart."""
        self.target = save_tiny(directory, family, seed, **changes)
        alone = {"num_hidden_layers": 1, "layer_types": ["full_attention"]}
        self.layer: PreTrainedModel = tiny_model(family, seed + 1, **changes | alone)
        noise = torch.Generator().manual_seed(seed + 2)
        hidden = self.target.config.hidden_size
        self.norms = [0.25 * torch.randn(hidden, generator=noise) for _ in range(2)]
        self.fc = torch.randn(hidden, 2 * hidden, generator=noise) * hidden**-0.5
        self.path = directory / WEIGHTS
        with torch.no_grad():
            self.target.lm_head.weight *= 10
        self.save()

    @torch.no_grad()
    def make_right(self, share: float) -> None:
        """Have a token follow from the one before, by a permutation, so that the layer guesses it.

        What layers add counts for a `share`: of enough, guesses are wrong at times.
        """
        for model in (self.target, self.layer):
            for name, value in model.named_parameters():
                if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
                    value *= share
            model.model.norm.weight.zero_()
        embedding = self.target.get_input_embeddings().weight
        embedding /= embedding.norm(dim=-1, keepdim=True)
        followers = torch.randperm(len(embedding), generator=torch.Generator().manual_seed(5))
        self.target.lm_head.weight[followers] = 4 * embedding
        hidden = embedding.shape[1]
        self.fc = torch.cat([torch.eye(hidden), torch.zeros(hidden, hidden)], 1)
        for norm in self.norms:
            norm.zero_()
        self.save()

    def save(self) -> None:
        """Write the checkpoint with what the modules hold."""
        self.layer.save_pretrained(self.path.parent / "mtp")
        parts = {
            name.replace("model.", "mtp.", 1): value
            for name, value in load_file(self.path.parent / "mtp" / WEIGHTS).items()
            if name.startswith(("model.layers.", "model.norm."))
        }
        parts |= {
            "mtp.fc.weight": self.fc,
            "mtp.pre_fc_norm_embedding.weight": self.norms[0],
            "mtp.pre_fc_norm_hidden.weight": self.norms[1],
        }
        self.target.save_pretrained(self.path.parent)
        stored = load_file(self.path)
        save_file(stored | parts, self.path)

    @torch.no_grad()
    def states(self, tokens: Sequence[int]) -> Tensor:
        """Return what the target's head reads of each token, one token at a time."""
        found, past = list[Tensor](), None
        for token in tokens:
            answer = self.target.model(
                torch.tensor([[token]]), past_key_values=past, use_cache=True
            )
            past = answer.past_key_values
            found.append(answer.last_hidden_state[0])
        return torch.cat(found)

    @torch.no_grad()
    def guesses(self, tokens: Sequence[int], states: Tensor, count: int) -> list[Tensor]:
        """Return logits of the tokens that follow: `count` steps of the layer, fed its own best.

        `states` are the target's of all tokens but the last.
        """
        read, said, found = states, list(tokens[1:]), list[Tensor]()
        embed, head = self.target.get_input_embeddings(), self.target.lm_head
        for _ in range(count):
            both = self._normed(embed(torch.tensor(said)), 0), self._normed(read, 1)
            inputs = linear(torch.cat(both, -1), self.fc)[None]
            after = self.layer.model(inputs_embeds=inputs).last_hidden_state[0, -1:]
            found.append(head(after)[0])
            read = torch.cat([read, after])
            said.append(int(found[-1].argmax()))
        return found

    def _normed(self, values: Tensor, which: int) -> Tensor:
        mean = values.pow(2).mean(-1, keepdim=True)
        eps = self.target.config.rms_norm_eps
        return values * torch.rsqrt(mean + eps) * (1 + self.norms[which])
