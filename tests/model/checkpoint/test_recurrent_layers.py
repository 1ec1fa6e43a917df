"""Sizes of a recurrence: rows of its inputs' matrix, and numbers of a state."""

from draftwerk.model.checkpoint.recurrent_layers import Recurrence

DELTA = Recurrence(key_heads=2, value_heads=4, key_size=3, value_size=5, kernel_size=4)


def test_inputs_are_queries_keys_and_values_and_what_stands_beside_them() -> None:
    assert DELTA.width == 20 and DELTA.channels == 2 * 2 * 3 + 20
    assert DELTA.rows == (32, 20, 4, 4)
    mamba = Recurrence(
        rule="mamba", key_heads=2, value_heads=4, key_size=3, value_size=5, kernel_size=4
    )
    assert mamba.rows == (32, 20, 4)


def test_a_state_has_the_matrices_and_the_inputs_before() -> None:
    assert DELTA.state_size == 4 * 3 * 5 + 3 * 32
