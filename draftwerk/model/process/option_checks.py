"""Options of a model that are served, or refused by name."""

import torch

from draftwerk.cache.pages.kv_formats import needed_for
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.stored_matrix import STORED
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.process.parts import DTYPES
from draftwerk.model.ranks.share import grid_of

DEVICE_DTYPES = {
    "cpu": (*DTYPES, "int8", "int4", STORED),
    "cuda": (*DTYPES, "int8", "int4", "fp16", "fp8", "w8a8", STORED),
}


def check_adapters(options: ModelOptions) -> None:
    """Raise Refused where adapters are not served."""
    if grid_of(options).size > 1:
        raise Refused(
            "lora and lora_merge do not go together with pipeline_parallel and tensor_parallel yet"
        )


def check_plain(config: ModelConfig, where: str) -> None:
    """Raise Refused for a model that is more than Llama's plain graph."""
    if switch := config.unlike_llama():
        raise Refused(f"{config.architecture}: {switch} is not served {where}")


def check_torch(options: ModelOptions) -> None:
    """Raise Refused for a format, or a place of weights, that torch alone does not serve."""
    if options.weight_store:
        raise Refused("weight_store needs the native kernels of a CPU")
    if options.dtype not in DTYPES:
        raise Refused(f"dtype {options.dtype!r} needs the native kernels of a CPU")
    if options.window is not None:
        raise Refused("window needs the native kernels of a CPU")
    check_kv_dtype(options)


def check_kv_dtype(options: ModelOptions, *served: str) -> None:
    """Raise Refused for a format other than auto and those that are served."""
    if options.kv_dtype not in ("auto", *served):
        raise Refused(f"kv_dtype {options.kv_dtype!r} needs {needed_for(options.kv_dtype)}")


def device_of(name: str) -> torch.device:
    """Return the device of a name, "auto" being a GPU where there is one. Raises Refused."""
    if name not in ("auto", "cpu", "cuda"):
        raise Refused(f"device {name!r} is not one of auto, cpu, cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise Refused("device cuda: torch sees none here")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
