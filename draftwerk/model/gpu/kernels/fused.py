"""The kernels that stand for the operations of `model.gpu.ops`."""

from draftwerk.model.gpu.ops import Ops


def triton_ops() -> Ops:
    """Return the kernels. Raises ImportError without Triton."""
    from draftwerk.model.gpu.kernels import norm, rotary
    from draftwerk.model.gpu.kernels import silu_and_mul as gate

    return Ops(norm.add_norm, rotary.rotate_and_store, gate.silu_mul)
