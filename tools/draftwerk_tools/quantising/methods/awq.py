"""AWQ: weights that read large activations are rounded more finely (Lin and others, 2306.00978)."""

from torch import Tensor

from draftwerk_tools.quantising.methods.layer_inputs import LayerInputs
from draftwerk_tools.quantising.methods.scale_search import centred


def aware_scales(inputs: LayerInputs, weight_peaks: Tensor, alpha: float) -> Tensor:
    """Return scales [in]: the mean size of inputs to the power alpha."""
    return centred(inputs.means**alpha)
