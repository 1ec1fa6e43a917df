"""One thread for torch: its threads spin at barriers, and a busy machine makes them wait long.

Without a GPU, Triton's kernels run in its interpreter; it must be told before the first import.
"""

import os

import torch

torch.set_num_threads(1)
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
