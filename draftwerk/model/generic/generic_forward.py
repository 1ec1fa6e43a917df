"""A causal model of Transformers as a `Forward`, its weights read from safetensors by name."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils import logging

from draftwerk.model.attention.signature import ScoredAttention
from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.checkpoint.files.shards import stored_tensors
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.generic.causal_lm import CausalLM, LayerPages
from draftwerk.model.generic.paged_attention import NAME, ROUND, PagedRound
from draftwerk.model.generic.row_tiles import RowTiles

TEXT_NAMES = {
    r"^language_model\.(?=lm_head)": "",
    r"^(?:model\.)?language_model\.(?!lm_head)(?:model\.)?": "model.",
}
"""The beginnings of names of a text's weights beside images or sound, and without them."""


class GenericForward:
    """A `Forward` in the numerics of Transformers."""

    def __init__(
        self, model: PreTrainedModel, attention: ScoredAttention, layers: tuple[LayerPages, ...]
    ) -> None:
        """The model is of `load_causal`; the attention gives a row the same bits in any company."""
        self.model = model
        self.attention = attention
        self.layers = layers
        self.states: Tensor | None = None
        """The states that the head read in the latest call [S, hidden]."""
        head: Any = model.get_output_embeddings()
        head.register_forward_pre_hook(self._keep_states)

    def _keep_states(self, head: object, given: tuple[Tensor, ...]) -> None:
        self.states = given[0][0]

    def __call__(self, batch: Batch, pages: Pages) -> Tensor:
        """Write the batch's K and V into the pages, return float32 logits [S, vocab]."""
        return self.run(PagedRound(batch, pages, self.attention, self.layers))

    @torch.inference_mode()
    def run(self, round_: PagedRound) -> Tensor:
        """Compute a round. Raises Refused where a model does what rows may not."""
        batch = round_.batch
        given: dict[str, Any] = {ROUND: round_, "logits_to_keep": batch.outputs.long()}
        with RowTiles():
            output = self.model(
                input_ids=batch.tokens[None].long(),
                position_ids=batch.positions[None].long(),
                use_cache=False,
                **given,
            )
        return output.logits[0].float()


def load_causal(directory: Path, model: CausalLM, dtype: torch.dtype) -> PreTrainedModel:
    """Read a model's weights, and nothing else that is in the directory.

    Raises Refused, naming the tensor, where they are not those of the config.
    """
    stored_tensors(directory)  # refuses what is no safetensors, or cut short
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    loaded, report = _read(directory, model, dtype)
    if model.beside_others:
        # What is not of the text are images and sound; parts of those have other names.
        parts = {_part(name) for name in loaded.state_dict()}
        report["unexpected_keys"] = [
            each for each in report["unexpected_keys"] if _part(each) in parts
        ]
    for kind, words in (("missing_keys", "lack"), ("unexpected_keys", "hold the unknown")):
        if names := sorted(report[kind]):
            raise Refused(f"the weights {words} {names[0]}")
    return loaded.eval()


def _part(name: str) -> str:
    """Return the part of a model that a weight is of, such as `model.layers`."""
    return ".".join(name.split(".")[:2])


def _read(
    directory: Path, model: CausalLM, dtype: torch.dtype
) -> tuple[PreTrainedModel, dict[str, Any]]:
    # The loop over experts keeps rows apart, unlike products of all of them at once.
    experts = {"experts_implementation": "eager"}
    renamed = {"key_mapping": TEXT_NAMES} if model.beside_others else {}
    try:
        return model.model_class.from_pretrained(
            directory,
            config=model.config,
            dtype=dtype,
            attn_implementation=NAME,
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            **(experts if model.model_class._can_set_experts_implementation() else {}),
            **renamed,
        )
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # whatever a class makes of tensors that are not its own
        reason = str(error).strip().partition("\n")[0]
        raise Refused(f"{directory}: Transformers does not load it: {reason}") from error
