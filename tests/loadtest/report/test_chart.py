"""A chart has all its series, and nothing that a page would take for markup."""

from xml.etree import ElementTree

from draftwerk_tools.loadtest.report.chart import Chart, Mark, Series


def chart(*series: Series, **more: object) -> Chart:
    return Chart(title="a < b", x_label="x & y", y_label="ms", series=series, **more)  # type: ignore[arg-type]


def test_a_chart_is_well_formed_whatever_its_words() -> None:
    found = chart(
        Series("<one>", [(0.0, 1.0), (1.0, 3.0)]),
        Series("two", [(0.0, 2.0)], "bars"),
        Series("three", [(n / 10, float(n)) for n in range(99)], "steps"),
        Series("four", [(0.5, 0.5)], "dots"),
        band=(0.0, 0.5),
        marks=(Mark(0.5, 1.0, "here"), Mark(0.5, 1.0, "twice")),
        note="said > once",
    ).html()
    tree = ElementTree.fromstring(found)
    words = "".join(tree.itertext())
    assert "a < b" in words and "x & y" in words and "<one>" in words
    assert "here" in words and "twice" not in words


def test_an_empty_series_is_still_a_chart() -> None:
    assert ElementTree.fromstring(chart(Series("none", [])).html()).tag == "figure"
