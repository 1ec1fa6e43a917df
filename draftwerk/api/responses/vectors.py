"""The result of a prompt that was read: a vector of length 1, or how likely a document answers.

Nothing here depends on a machine's library: square roots and divisions are exact to the last bit,
and a sum of squares is rounded once.
"""

import sys
from array import array
from base64 import b64encode
from math import fsum, sqrt

from draftwerk.speculative.parameters.elementary import exp
from draftwerk.speculative.requests.pooling import PoolingOutput
from draftwerk.speculative.row_parts.state_sums import summed

FLOAT = "f"


def vector_of(found: PoolingOutput, dimensions: int | None = None) -> "array[float]":
    """Return the pooled states as float32 [dimensions], the first of them, of length 1."""
    numbers = summed(found.state_sum)[:dimensions]
    length = sqrt(fsum(number * number for number in numbers))
    return array(FLOAT, [number / length for number in numbers] if length else numbers)


def as_base64(vector: "array[float]") -> str:
    """Return a vector's bytes, little-endian, as OpenAI's clients read them."""
    if sys.byteorder == "big":
        vector = array(FLOAT, vector)
        vector.byteswap()
    return b64encode(vector.tobytes()).decode()


def relevance_of(found: PoolingOutput) -> float:
    """Return what yes has of the probability of yes and no."""
    yes, no = found.answers
    return 1.0 / (1.0 + exp(no - yes))
