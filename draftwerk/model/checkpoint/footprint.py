"""The memory that loading a model takes, known before anything of it is read."""

BITS = {"fp32": 32.0, "bf16": 16.0, "fp16": 16.0, "fp8": 8.0, "w8a8": 8.0, "int8": 8.5, "int4": 4.5}
"""A weight, packed."""
TYPES = {"Q8_0": 8.5, "Q6_K": 6.6, "Q5_K_M": 5.7, "Q4_K_M": 4.9, "Q3_K_M": 3.9, "Q2_K": 3.2}
"""A weight of a GGUF's usual types, on average."""
WINDOW_BYTES = 64 * 2**20
"""The bytes of a file that is being packed, with the libraries' own."""
ROUNDED_UP = 1.05
"""Rows to whole panels, norms, and what is dequantised meanwhile."""


def gguf_packed_bytes(stored_bytes: int, elements: int, dtype: str) -> int:
    """Return the most that a GGUF's weights take once they are packed."""
    packed = stored_bytes if dtype not in BITS else elements * BITS[dtype] / 8
    return int(ROUNDED_UP * packed)


def gguf_loading_bytes(stored_bytes: int, elements: int, dtype: str) -> int:
    """Return the most that a GGUF takes while it is loaded, each layer read once."""
    return gguf_packed_bytes(stored_bytes, elements, dtype) + WINDOW_BYTES


def what_fits(elements: int, free: int) -> str:
    """Return in words which type of so many weights would fit into memory."""
    bits = 8 * (free - WINDOW_BYTES) / ROUNDED_UP / max(elements, 1)
    fitting = [name for name, needed in TYPES.items() if needed <= bits]
    if not fitting:
        return "no GGUF type of it would fit"
    return f"a GGUF of {fitting[0]} would fit" + (" or of fewer bits" if len(fitting) > 1 else "")
