"""Before any test module is imported: without a GPU, Triton's kernels run in its interpreter.

Torch gets one thread: its threads spin at barriers, and a busy machine makes them wait long.
"""

import os

import torch

torch.set_num_threads(1)
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
