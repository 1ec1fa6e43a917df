"""SmoothQuant: outliers of activations moved into weights (Xiao and others, arXiv 2211.10438)."""

from torch import Tensor

from draftwerk_tools.quantising.methods.layer_inputs import LayerInputs
from draftwerk_tools.quantising.methods.scale_search import centred


def smooth_scales(inputs: LayerInputs, weight_peaks: Tensor, alpha: float) -> Tensor:
    """Return scales [in]: peaks of inputs to the power alpha, over weights' to 1 - alpha."""
    return centred(inputs.peaks**alpha / weight_peaks ** (1 - alpha))
