"""The numbers of a model's matrices and vectors, as the kernels have them."""

from enum import IntEnum


class Part(IntEnum):
    """Mirrors `Part` in source/forward/model.h."""

    QKV = 0
    OUTPUT = 1
    GATE_UP = 2
    DOWN = 3
    HEAD = 4
    EMBEDDING = 5
    ROUTER = 6
    EXPERT_GATE_UP = 7
    EXPERT_DOWN = 8
    INPUT_PROJECTION = 9
    INPUT_GATE = 10
    INPUT_OUTPUT = 11
    INPUT_EMBEDDING = 12


class Vector(IntEnum):
    """Mirrors `Vector` in source/forward/model.h."""

    ATTENTION_NORM = 0
    FFN_NORM = 1
    QUERY_NORM = 2
    KEY_NORM = 3
    NORM = 4
    AFTER_ATTENTION = 5
    AFTER_FFN = 6
    TAPS = 7
    SINKS = 8
    DECAY = 9
    STEP_BIAS = 10
    GATED_NORM = 11
    CHOICE_BIAS = 12
    SKIP = 13
    VALUE_NORM = 14
    AFTER_INPUT = 15
    SCALAR = 16
    INPUT_NORM = 17
    EXPERT_NORM = 18
    AFTER_EXPERTS = 19
    AFTER_DENSE = 20
    ROUTER_NORM = 21
    EXPERT_SCALES = 22
