"""What two texts share at their beginnings and ends, without markers that this cuts."""


def whole_marks(text: str) -> str:
    """Return a common beginning without a marker that it cuts."""
    at = text.rfind("<")
    return text[:at] if at > text.rfind(">") else text


def shared_end(text: str, suffix: str) -> str:
    """Return the longest common ending, without a marker that it cuts."""
    ending = shared(text[::-1], suffix[::-1])[::-1]
    at = ending.find(">") + 1
    is_cut = len(ending) < len(suffix) and 0 < at <= ending.find("<") % (len(ending) + 1)
    return ending[at:] if is_cut else ending


def shared(first: str, second: str) -> str:
    """Return the longest common beginning."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return first[:count]
