"""A model that is not divided is one rank's, whole."""

import torch

from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.ranks.share import WHOLE, grid_of, share_of
from draftwerk.model.reference.tiled_products import all_mine


def test_without_parallelism_a_process_has_all() -> None:
    options = ModelOptions()
    assert grid_of(options).size == 1
    assert share_of(options, torch.float32) is WHOLE
    assert WHOLE.gather is all_mine and WHOLE.words == ()


def test_a_grid_has_stages_and_ranks_of_each() -> None:
    grid = grid_of(ModelOptions(pipeline_parallel=2, tensor_parallel=3))
    assert (grid.pipeline, grid.tensor, grid.size) == (2, 3, 6)
