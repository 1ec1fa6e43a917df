"""The values of an object in JSON that are whole, where its text was cut."""

import json
import re

JSON_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"[^"\\]*(?:\\.[^"\\]*)*")|(?P<mark>[][{},:])|(?P<scalar>[^][{},:"\s]+))""",
    re.DOTALL,
)
DEPTH_MAX = 256
CLOSERS = {"{": "}", "[": "]"}


def whole_values(text: str) -> str:
    """Return the beginning of an object in JSON as an object, without the value that was cut."""
    closers: list[str] = []
    kept, end, before, at = 0, "", "", 0
    while (token := JSON_TOKEN.match(text, at)) is not None:
        at, found = token.end(), token[0].lstrip()
        if found in CLOSERS:
            closers.append(CLOSERS[found])
            if len(closers) > DEPTH_MAX:
                break
        elif found in ("}", "]") and (not closers or closers.pop() != found):
            break
        is_key = token.lastgroup == "string" and before != ":" and closers[-1:] == ["}"]
        if not (is_key or found in (",", ":") or _is_cut(token)):
            kept, end = at, "".join(reversed(closers))
        before = found
    return text[:kept] + end or "{}"


def _is_cut(token: re.Match[str]) -> bool:
    """Whether a token is a number or a word that is none yet."""
    if token["scalar"] is None:
        return False
    try:
        json.loads(token["scalar"])
    except ValueError:
        return True
    return False
