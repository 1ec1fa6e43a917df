"""Which rule and ratio a server takes, and the table that comes with the default model."""

import pytest

from draftwerk.assembly.approximation_tables import kept_blend
from draftwerk.assembly.blend_table import KL_MOST, SOONER_LEAST, BlendTable
from draftwerk.model.checkpoint.hub import locate
from draftwerk.speculative.options.blend.quality import Quality


def quality(ratio: float, kl: float, sooner: float) -> Quality:
    return Quality(
        rule="hkvd",
        ratio=ratio,
        kl_mean=kl,
        kl_p99=1.0,
        top1=0.9,
        first_divergence=1.0,
        overlap=0.5,
        first_token_s=1.0,
        exact_s=sooner,
    )


@pytest.mark.parametrize(
    ("rows", "ratio"),
    [
        ([(0.1, 0.05, 6.0), (0.2, 0.029, 4.0), (0.3, 0.02, 3.0)], 0.2),
        ([(0.1, 0.05, 6.0), (0.2, 0.04, 2.5), (0.3, 0.02, 1.9)], 0.2),
        ([(0.0, 0.01, 9.0), (1.0, 0.0, 2.1)], None),
    ],
)
def test_the_soonest_of_the_near_ones_or_the_nearest_of_the_soon(
    rows: list[tuple[float, float, float]], ratio: float | None
) -> None:
    table = BlendTable(1, 100, tuple(quality(*row) for row in rows))
    assert (table.best and table.best.ratio) == ratio


def test_the_default_models_table_comes_with_the_package(monkeypatch, tmp_path) -> None:
    directory = locate(None).directory
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    table = kept_blend(directory, "stored")
    assert table is not None and table.best is not None
    assert table.best.kl_mean <= KL_MOST and table.best.sooner >= SOONER_LEAST
    assert kept_blend(directory, "fp32") is None
