"""Certificates: what is good enough is served, and nothing below it."""

from pathlib import Path

import pytest

from draftwerk.assembly.blend_certificate import Certificate, read, write
from draftwerk.speculative.blend.measured import Quality


def quality(rule: str, ratio: float, kl: float, first_token_s: float = 1.0) -> Quality:
    return Quality(
        rule=rule,  # type: ignore[arg-type]
        ratio=ratio,
        kl_mean=kl,
        kl_p99=kl,
        top1=1.0 - kl,
        first_divergence=9.0,
        overlap=1.0,
        first_token_s=first_token_s,
        exact_s=2.0,
    )


def certificate(*found: Quality) -> Certificate:
    return Certificate(model="m", prompt_count=3, kl_max=0.02, top1_min=0.9, found=found)


def test_the_least_good_ratio_of_each_rule_is_served_and_the_fastest_is_the_default() -> None:
    served = certificate(
        quality("hkvd", 0.05, 0.5),
        quality("hkvd", 0.15, 0.02, 0.4),
        quality("hkvd", 1.0, 0.0, 2.0),
        quality("head", 1.0, 0.0, 2.0),
        quality("none", 0.0, 0.9, 0.1),
    ).served()
    assert served is not None
    assert served.rules == {"head": 1.0, "hkvd": 0.15}
    assert served.default == ("hkvd", 0.15)


def test_a_good_ratio_below_a_bad_one_is_luck_and_not_served() -> None:
    found = [quality("head", 0.05, 0.0), quality("head", 0.3, 0.3), quality("head", 1.0, 0.0)]
    served = certificate(*found).served()
    assert served is not None and served.rules == {"head": 1.0}


def test_nothing_is_served_where_nothing_is_good() -> None:
    assert certificate(quality("none", 0.0, 0.021)).served() is None


def test_certificates_are_kept_by_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = certificate(quality("none", 0.0, 0.0))
    path = write(kept)
    assert read("m") == kept and read("other") is None and read("") is None
    path.rename(path.with_name("other.json"))
    assert read("other") is None, "it was made out for another model"
    path.write_text("{")
    assert read("m") is None
