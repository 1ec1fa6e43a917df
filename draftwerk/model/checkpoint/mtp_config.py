"""What the MTP layer of a model's own files takes, without torch."""

from pathlib import Path

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.drafter_plan import DrafterPlan
from draftwerk.model.checkpoint.files.shards import stored_tensors
from draftwerk.model.checkpoint.gguf_card import read_card
from draftwerk.model.checkpoint.hf_config import read_supported
from draftwerk.model.checkpoint.unsupported import Refused

MTP = "mtp"
"""The draft head that is asked for where a model's own MTP layer is to draft."""
PREFIX = "mtp."
"""Prefix of its tensors' names."""
NO_MTP = "the model's files hold no MTP layer"


def is_mtp(wanted: Path) -> bool:
    """Whether the layer of the model's own files is asked for."""
    return str(wanted) == MTP


def plan_mtp(_: Path, directory: Path, target: ModelConfig) -> DrafterPlan:
    """Return what a model's MTP layer takes. Raises Refused where there is none."""
    stored = stored_tensors(directory) if read_card(directory) is None else {}
    own = {name: tensor for name, tensor in stored.items() if name.startswith(PREFIX)}
    if not own:
        raise Refused(NO_MTP)
    return DrafterPlan(
        name="the MTP layer of the model's files",
        tensors=own,
        layers={**read_supported(directory), "num_hidden_layers": 1},
        state_size=target.hidden_size,
        shares_head=True,
    )
