"""What the actors did during a step, as lines of text from a server's /debug/trace.

    python -m benchmarks.speed.timeline URL [--tokens 60] [--round N]

One client reads a text; then every span that touches the chosen round's verifier span is printed,
with its beginning and end in milliseconds after that one's beginning, and whether it lies within.
Without --round it is the round in the middle of the text.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

WAIT_S = 60.0


class TimelineSpan(NamedTuple):
    """Something an actor did; times in milliseconds of one clock."""

    actor: str
    what: str
    begun: float
    ended: float


def spans_of(trace: Sequence[Mapping[str, Any]]) -> list[TimelineSpan]:
    """Return the spans of a page in Chrome's trace format, in order of beginning."""
    names = {each["tid"]: each["args"]["name"] for each in trace if each["ph"] == "M"}
    found = [
        TimelineSpan(
            names[each["tid"]], each["name"], each["ts"] / 1e3, (each["ts"] + each["dur"]) / 1e3
        )
        for each in trace
        if each["ph"] == "X"
    ]
    return sorted(found, key=lambda span: span.begun)


def lines(spans: Sequence[TimelineSpan], step: TimelineSpan) -> Iterator[str]:
    """Yield a line for each span that touches the step's."""
    yield "from ms    to ms  actor        what"
    for span in spans:
        if span.ended >= step.begun and span.begun <= step.ended:
            is_within = step.begun <= span.begun and span.ended <= step.ended
            mark = "" if span is step or not is_within else "  (within)"
            yield (
                f"{span.begun - step.begun:7.2f}  {span.ended - step.begun:7.2f}  "
                f"{span.actor:<12} {span.what}{mark}"
            )


def chosen(spans: Sequence[TimelineSpan], number: int | None) -> TimelineSpan:
    """Return the verifier's span of a round, or the middle one. Raises ValueError without one."""
    steps = [span for span in spans if span.actor == "verifier" and span.what.startswith("step ")]
    steps = [span for span in steps if number is None or span.what == f"step {number}"]
    if not steps:
        raise ValueError("the trace has no such step")
    return steps[len(steps) // 2]


def fetched(url: str, body: Mapping[str, Any] | None = None) -> Any:
    """Return what a page holds as JSON; with a body it is posted."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": "application/json"})
    with urlopen(request, timeout=WAIT_S) as response:
        return json.load(response)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url")
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--round", type=int)
    given = parser.parse_args()
    asked = {
        "messages": [{"role": "user", "content": "Tell me about rivers."}],
        "max_tokens": given.tokens,
        "ignore_eos": True,
    }
    fetched(f"{given.url}/v1/chat/completions", asked)
    page = fetched(f"{given.url}/debug/trace")
    spans = spans_of(page["traceEvents"] if isinstance(page, dict) else page)
    print("\n".join(lines(spans, chosen(spans, given.round))))


if __name__ == "__main__":
    main()
