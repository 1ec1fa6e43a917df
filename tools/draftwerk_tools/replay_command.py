"""`draftwerk replay LOG`: what `serve --record` wrote, asked again one request after the other."""

from collections.abc import Sequence

from draftwerk.api.cli.arguments import DEFAULT_URL
from draftwerk.api.cli.command_parser import Parser
from draftwerk_tools.loadtest.__main__ import main as loadtest


def main(words: Sequence[str]) -> int:
    """Replay a record; returns 1 if a text is not what it was."""
    parser = Parser(prog="draftwerk replay")
    parser.add_argument("log", metavar="LOG", help="what `serve --record LOG` wrote")
    parser.add_argument("--url", default=DEFAULT_URL, help=f"the server (default: {DEFAULT_URL})")
    parser.add_argument("--api-key", default="", metavar="KEY", help="or $OPENAI_API_KEY")
    parser.add_argument(
        "--at-once", type=int, default=1, metavar="N", help="requests under way (default: 1)"
    )
    given = parser.parse_args(words)
    replay = ["replay", given.url, given.log, "--check", "--speed", "0"]
    replay += ["--at-once", str(given.at_once)]
    return loadtest(replay + (["--api-key", given.api_key] if given.api_key else []))
