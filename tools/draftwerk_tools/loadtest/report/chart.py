"""A chart as inline SVG: lines, dots, steps and bars over two labelled axes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from draftwerk_tools.loadtest.report.axis import Scale, linear, logarithmic, short

PALETTE = ("#2563eb", "#ea580c", "#059669", "#9333ea", "#dc2626", "#0891b2", "#a16207", "#475569")
WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 68, 14, 12, 44
LINE_DOTS_MAX = 24
HOVER_MAX = 60
NEAR_ZERO = 0.3
NEAR_X, NEAR_Y = 110, 16
Points = Sequence[tuple[float, float]]
SeriesKind = Literal["line", "dots", "steps", "bars"]


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    points: Points
    kind: SeriesKind = "line"
    colour: str | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """A marked point."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """`band` shades a range of x: what the numbers are taken from."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    note: str = ""
    log_x: bool = False
    x_ticks: Sequence[float] | None = None
    band: tuple[float, float] | None = None
    marks: Sequence[Mark] = ()

    def html(self) -> str:
        """Return a figure with its title, legend and plot."""
        note = f'<p class="note">{escape(self.note)}</p>' if self.note else ""
        return (
            f"<figure><figcaption>{escape(self.title)}</figcaption>{note}{self._legend()}"
            f"{self._svg()}</figure>"
        )

    def _legend(self) -> str:
        if len(self.series) < 2:
            return ""
        items = (
            f'<span><i style="background:{_colour(series, index)}"></i>{escape(series.name)}</span>'
            for index, series in enumerate(self.series)
        )
        return f'<div class="legend">{"".join(items)}</div>'

    def _svg(self) -> str:
        x, y = self._scales()
        body = [*self._band(x), *_grid(x, y, self.x_ticks or x.ticks()), *self._titles()]
        for index, series in enumerate(self.series):
            body.append(_drawn(series, _colour(series, index), x, y))
        body += _marked(self.marks, x, y)
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{escape(self.title)}">{"".join(body)}</svg>'
        )

    def _scales(self) -> tuple[Scale, Scale]:
        points = [point for series in self.series for point in series.points] or [(0.0, 0.0)]
        xs, ys = [x for x, _ in points], [y for _, y in points]
        bars = any(series.kind == "bars" for series in self.series)
        if bars:
            xs += [min(xs) - 0.5, max(xs) + 0.5]
        across = (LEFT, WIDTH - RIGHT)
        x = logarithmic(min(xs), max(xs), *across) if self.log_x else Scale(*_span(xs), *across)
        return x, linear(min(0.0, *ys), max(ys), HEIGHT - BOTTOM, TOP)

    def _band(self, x: Scale) -> Iterator[str]:
        if self.band:
            left, right = x(self.band[0]), x(self.band[1])
            yield (
                f'<rect class="band" x="{left}" y="{TOP}" width="{max(0.0, right - left):.1f}" '
                f'height="{HEIGHT - BOTTOM - TOP}"/>'
            )

    def _titles(self) -> Iterator[str]:
        middle = (TOP + HEIGHT - BOTTOM) / 2
        yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, self.x_label, "axis")
        yield (
            f'<text class="axis" text-anchor="middle" '
            f'transform="translate(13 {middle}) rotate(-90)">{escape(self.y_label)}</text>'
        )


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Return the range to show: from zero if that is near, else what the values need."""
    low, high = min(values), max(values)
    if 0 <= low < NEAR_ZERO * high:
        return 0.0, high
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _colour(series: Series, index: int) -> str:
    return series.colour or PALETTE[index % len(PALETTE)]


def _text(x: float, y: float, text: str, style: str = "", anchor: str = "middle") -> str:
    return f'<text class="{style}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _grid(x: Scale, y: Scale, x_ticks: Sequence[float]) -> Iterator[str]:
    for value in y.ticks():
        at = y(value)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>'
        yield _text(LEFT - 7, at + 4, short(value), anchor="end")
    base = HEIGHT - BOTTOM
    yield f'<line class="base" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>'
    for value in x_ticks:
        at = x(value)
        yield f'<line class="base" x1="{at}" x2="{at}" y1="{base}" y2="{base + 4}"/>'
        yield _text(at, base + 17, short(value))


def _drawn(series: Series, colour: str, x: Scale, y: Scale) -> str:
    placed = [(x(px), y(py)) for px, py in series.points]
    match series.kind:
        case "dots":
            return _dots(series, placed, colour)
        case "bars":
            return _bars(series, x, y, colour)
        case "steps":
            return _path(list(_stepped(placed)), colour) + _hovered(series, placed)
        case "line" if len(placed) <= LINE_DOTS_MAX:
            return _path(placed, colour) + _dots(series, placed, colour, 3)
        case "line":
            return _path(placed, colour) + _hovered(series, placed)


def _path(placed: Points, colour: str) -> str:
    if not placed:
        return ""
    way = " L".join(f"{px:g} {py:g}" for px, py in placed)
    return f'<path d="M{way}" fill="none" stroke="{colour}" stroke-width="1.8"/>'


def _stepped(placed: Points) -> Iterator[tuple[float, float]]:
    """Hold each value until the next one."""
    for index, (px, py) in enumerate(placed):
        if index:
            yield px, placed[index - 1][1]
        yield px, py


def _dots(series: Series, placed: Points, colour: str, radius: float = 2.2) -> str:
    dots = "".join(
        f'<circle cx="{px:g}" cy="{py:g}" r="{radius}">{_tip(series, *value)}</circle>'
        for (px, py), value in zip(placed, series.points, strict=True)
    )
    return f'<g fill="{colour}" fill-opacity="0.65">{dots}</g>'


def _hovered(series: Series, placed: Points) -> str:
    """Lay unseen dots with tooltips along a line; no more than can be pointed at singly."""
    step = -(-len(placed) // HOVER_MAX) or 1
    dots = "".join(
        f'<circle cx="{px:g}" cy="{py:g}" r="6">{_tip(series, *value)}</circle>'
        for (px, py), value in list(zip(placed, series.points, strict=True))[::step]
    )
    return f'<g class="hover">{dots}</g>'


def _tip(series: Series, x: float, y: float) -> str:
    """Return what a browser shows while the pointer rests on the element around it."""
    return f"<title>{escape(series.name)}: {_exact(y)} at {_exact(x)}</title>"


def _exact(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _bars(series: Series, x: Scale, y: Scale, colour: str) -> str:
    base = y(y.low)
    drawn: list[str] = []
    for px, py in series.points:
        left, right, top = x(px - 0.36), x(px + 0.36), y(py)
        drawn.append(
            f'<rect x="{left}" y="{top}" width="{right - left:.1f}" height="{base - top:.1f}">'
            f"{_tip(series, px, py)}</rect>"
        )
    return f'<g fill="{colour}" fill-opacity="0.85">{"".join(drawn)}</g>'


def _marked(marks: Sequence[Mark], x: Scale, y: Scale) -> Iterator[str]:
    """Ring every mark; where two would write over each other, the first one's words do."""
    written: list[tuple[float, float]] = []
    for mark in marks:
        px, py = x(mark.x), y(mark.y)
        crowded = any(abs(px - wx) < NEAR_X and abs(py - wy) < NEAR_Y for wx, wy in written)
        if not crowded:
            written.append((px, py))
        yield _mark(px, py, "" if crowded else mark.text)


def _mark(px: float, py: float, text: str) -> str:
    anchor = "end" if px > WIDTH * 0.75 else "start"
    shift = -10 if anchor == "end" else 10
    words = _text(px + shift, py - 9, text, "marked", anchor) if text else ""
    return f'<circle class="mark" cx="{px}" cy="{py}" r="7"/>{words}'
