"""Where kernels are tested: on a GPU where there is one, else in Triton's interpreter."""

import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
HALF = torch.bfloat16 if DEVICE.type == "cuda" else torch.float16
"""The interpreter multiplies through NumPy, which has no bfloat16."""
