"""Pieces of the page: head, style, cards, tables."""

from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
:root { color-scheme: light; --ink: #1e293b; --soft: #64748b; --line: #e2e8f0; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 32px 28px 64px; background: #fff;
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 25px; margin: 0; } h2 { font-size: 18px; margin: 36px 0 12px; }
.sub, .note { color: var(--soft); margin: 2px 0 0; font-size: 13.5px; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(165px, 1fr)); gap: 12px;
  margin: 22px 0 20px; }
.card { border: 1px solid var(--line); border-radius: 8px; padding: 11px 14px; }
.card b { display: block; font-size: 22px; line-height: 1.3; font-weight: 600; }
.card span { color: var(--soft); font-size: 13px; }
.warn { background: #fffbeb; border-left: 3px solid #f59e0b; padding: 8px 14px; margin: 6px 0;
  border-radius: 3px; font-size: 14px; }
.charts { margin-top: 20px; display: grid; gap: 20px;
  grid-template-columns: repeat(auto-fit, minmax(440px, 1fr)); }
figure { margin: 0; border: 1px solid var(--line); border-radius: 8px; padding: 14px 14px 6px; }
figcaption { font-weight: 600; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; margin-top: 5px; font-size: 13px; }
.legend i { display: inline-block; width: 11px; height: 11px; border-radius: 3px;
  margin-right: 6px; vertical-align: -1px; }
svg { width: 100%; height: auto; display: block; margin-top: 6px; }
svg text { font: 12px system-ui, sans-serif; fill: #64748b; }
svg text.axis { fill: #334155; } svg text.marked { fill: #0f172a;
  font-weight: 600; paint-order: stroke; stroke: #fff; stroke-width: 4px; }
.grid { stroke: #eef2f7; } .base { stroke: #94a3b8; } .band { fill: #f1f5f9; }
.hover { fill: transparent; } .hover circle:hover { fill: #0f172a; fill-opacity: 0.25; }
.mark { pointer-events: none; fill: none; stroke: #0f172a; stroke-width: 1.8; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 5px 13px; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { color: var(--soft); font-weight: 500; }
th:first-child, td:first-child { text-align: left; padding-left: 2px; }
details { margin-top: 28px; } summary { cursor: pointer; color: var(--soft); }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: 12.5px; background: #f8fafc;
  padding: 12px; border-radius: 6px; }
"""


def page(title: str, sub: str, body: Iterable[str]) -> str:
    """Return a whole document that needs nothing from anywhere else."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>"
        f'<h1>{escape(title)}</h1><p class="sub">{escape(sub)}</p>{"".join(body)}'
        "</body></html>\n"
    )


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def cards(values: Iterable[tuple[str, str]]) -> str:
    """Show headline numbers: (value, what it is)."""
    shown = (
        f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for value, name in values
    )
    return f'<div class="cards">{"".join(shown)}</div>'


def warnings(lines: Iterable[str]) -> str:
    return "".join(f'<p class="warn">{escape(line)}</p>' for line in lines)


def paragraph(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def table(lines: Sequence[Sequence[str]]) -> str:
    """Show cells under a head line."""
    head, *rest = lines
    body = "".join(_row(line, "td") for line in rest)
    return f'<div class="scroll"><table><thead>{_row(head, "th")}</thead>{body}</table></div>'


def details(summary: str, text: str) -> str:
    return f"<details><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details>"


def _row(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
