"""What a trial of approximations found, in words."""

from draftwerk.settings.approximation_quality import ApproximationQuality, NeedleScore, StepTime


def test_every_figure_is_told() -> None:
    found = ApproximationQuality(
        prompts=3,
        prompt_tokens=4000,
        places=99,
        kl_mean=0.01234,
        kl_p99=0.2,
        same_best=0.987,
        parts_after=12.5,
        answer_tokens=64,
        needles=(NeedleScore(2000, 5, 4, 6),),
        token_bytes=50,
        exact_token_bytes=200,
        steps=(StepTime(4, 20.0, 10.0),),
    )
    words = "\n".join(found.lines())
    for figure in ("3 prompts", "4000 tokens", "0.01234", "98.7 %", "12.5 of 64", "found 4 of 6"):
        assert figure in words
    assert "0.250 of 200" in words and "(2.00 x)" in words
