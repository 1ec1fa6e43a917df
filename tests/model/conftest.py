"""One thread for torch: its threads spin at barriers, and a busy machine makes them wait long."""

import torch

torch.set_num_threads(1)
