"""Which attention serves a device: an explicit table of backends and what each can do."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from draftwerk.model.attention import reference
from draftwerk.model.attention.flash import (
    DTYPES,
    HEAD_MAX,
    flash_attention_2,
    flash_attention_3,
)
from draftwerk.model.attention.padded import PaddedAttention
from draftwerk.model.attention.signature import (
    Attention,
    PartialAttention,
    ScoredAttention,
    WithFallback,
)
from draftwerk.model.attention.tiled import TiledAttention, folded
from draftwerk.model.checkpoint.unsupported import Refused


class Needs(NamedTuple):
    """The needs that a backend has to meet."""

    device: torch.device
    block_size: int = 16
    exact: bool = False
    """Whether a token's result must be the same bits in any batch."""
    context_max: int = 8192
    fp8: bool = False
    """Whether the pages are in e4m3."""
    dtype: torch.dtype = torch.bfloat16
    """The dtype of activations."""
    head_size: int = 128


class AttentionBackend(NamedTuple):
    """One way to attend, and what it declares."""

    make: Callable[[Needs], Attention]
    """Raises Refused where it cannot run."""
    page_multiple: int = 1
    trees: bool = True
    graphs: bool = False
    """Whether a CUDA graph may record it: it reads nothing back from the device."""
    exact: bool = False
    fp8: bool = False
    """Whether it reads pages in e4m3 beside a query in another dtype."""


class Chosen(NamedTuple):
    """The backend that "auto" or a name stands for."""

    name: str
    attention: Attention
    backend: AttentionBackend
    passed_over: tuple[str, ...] = ()
    """Why better ones were not taken."""


def _triton(needs: Needs) -> ScoredAttention:
    try:
        from draftwerk.model.gpu.kernels.attention import TritonAttention
        from draftwerk.model.gpu.kernels.launch import can_launch
    except ImportError as error:
        raise Refused(f"attention triton: {error} (pip install triton)") from error
    if not can_launch(needs.device):
        raise Refused("attention triton needs a GPU, or TRITON_INTERPRET=1 to be very slow")
    rest = TiledAttention(folded) if needs.exact else PaddedAttention()
    return WithFallback(TritonAttention(needs.exact, needs.context_max), rest)


def _flash(name: str, make: Callable[[], PartialAttention], needs: Needs) -> Attention:
    """Leave what it does not serve to Triton and to torch."""
    if needs.dtype not in DTYPES:
        raise Refused(f"attention {name} computes in bf16 or fp16")
    if needs.head_size % 8 or needs.head_size > HEAD_MAX:
        raise Refused(
            f"attention {name} takes heads of a multiple of 8 up to {HEAD_MAX}, not "
            f"{needs.head_size}"
        )
    return WithFallback(make(), _triton(needs))


BACKENDS: dict[str, AttentionBackend] = {
    "padded": AttentionBackend(lambda needs: PaddedAttention(), fp8=True),
    "tiled": AttentionBackend(lambda needs: TiledAttention(folded), exact=True, fp8=True),
    "reference": AttentionBackend(lambda needs: reference.attend, fp8=True),
    "triton": AttentionBackend(_triton, graphs=True, exact=True, fp8=True),
    "flash_attn": AttentionBackend(
        lambda needs: _flash("flash_attn", flash_attention_2, needs),
        page_multiple=256,
        trees=False,
        graphs=True,
    ),
    "flash_attn_3": AttentionBackend(
        lambda needs: _flash("flash_attn_3", flash_attention_3, needs),
        trees=False,
        graphs=True,
    ),
}
AUTOMATIC = {"cpu": ("padded",), "cuda": ("flash_attn_3", "flash_attn", "triton")}
"""Backends of each kind of device, the best first: the first that can run is taken."""
HOPPER = 9


def _best(needs: Needs) -> Chosen:
    *better, last = AUTOMATIC[needs.device.type]
    passed_over: list[str] = []
    for name in better:
        # Compiled for others too, but no faster than the rest there.
        if name == "flash_attn_3" and _generation(needs.device) != HOPPER:
            continue
        try:
            return choose_attention(name, needs)._replace(passed_over=tuple(passed_over))
        except Refused as error:
            passed_over.append(str(error))
    return choose_attention(last, needs)._replace(passed_over=tuple(passed_over))


def _generation(device: torch.device) -> int:
    return torch.cuda.get_device_capability(device)[0]


def choose_attention(name: str, needs: Needs) -> Chosen:
    """Return a backend by name; "auto" is the best for the device. Raises Refused."""
    if name == "auto":
        return _best(needs)
    backend = BACKENDS.get(name)
    if backend is None:
        known = ("native", *BACKENDS) if needs.device.type == "cpu" else tuple(BACKENDS)
        raise Refused(f"attention {name!r} is not one of auto, {', '.join(known)}")
    if needs.block_size % backend.page_multiple:
        raise Refused(
            f"attention {name} needs blocks of a multiple of {backend.page_multiple} tokens, not "
            f"{needs.block_size}: --block-size {backend.page_multiple}"
        )
    if needs.exact and not backend.exact:
        able = ", ".join(name for name, backend in BACKENDS.items() if backend.exact)
        raise Refused(f"attention {name} is not exact on a GPU; --exact needs one of: {able}")
    if needs.fp8 and not backend.fp8:
        able = ", ".join(name for name, backend in BACKENDS.items() if backend.fp8)
        raise Refused(f"attention {name} reads no fp8 pages; --kv-dtype fp8 needs one of: {able}")
    return Chosen(name, backend.make(needs), backend)
