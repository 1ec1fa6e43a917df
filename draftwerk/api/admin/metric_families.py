"""Families of Prometheus' metrics, made of figures."""

from collections.abc import Mapping

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from draftwerk.actors.monitoring.histogram import Histogram


def gauge_of(name: str, text: str, value: float, labels: dict[str, str]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


def gauges_of(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return a gauge with a value for each word of its label."""
    family = GaugeMetricFamily(name, text, labels=[label])
    for word, value in values.items():
        family.add_metric([word], value)
    return family


def counter_of(name: str, text: str, value: float, labels: dict[str, str]) -> Metric:
    family = CounterMetricFamily(name, text, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


def split_of(
    name: str, text: str, label: str, values: Mapping[str, float], labels: dict[str, str]
) -> Metric:
    """Return a counter with one more label, a value for each of its words."""
    family = CounterMetricFamily(name, text, labels=[*labels, label])
    for word, value in values.items():
        family.add_metric([*labels.values(), word], value)
    return family


def histograms_of(name: str, text: str, label: str, histograms: Mapping[str, Histogram]) -> Metric:
    """Return a histogram with one for each word of its label."""
    family = HistogramMetricFamily(name, text, labels=[label])
    for word, histogram in histograms.items():
        family.add_metric([word], histogram.cumulative(), histogram.total)
    return family


def histogram_of(name: str, text: str, histogram: Histogram, labels: dict[str, str]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=list(labels))
    family.add_metric(list(labels.values()), histogram.cumulative(), histogram.total)
    return family
