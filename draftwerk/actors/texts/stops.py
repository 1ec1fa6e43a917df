"""Stop strings: finds the first, and holds back text that may turn out to be the start of one."""

from dataclasses import dataclass

from draftwerk.speculative.replies.literals import overlap


@dataclass(slots=True)
class StopScanner:
    """Scans a growing text; what it lets through depends on the text alone, not on its chunks."""

    stops: tuple[str, ...]
    held: str = ""

    def push(self, text: str) -> tuple[str, str]:
        """Take in new text; returns (text to send, the stop string found or "").

        After a stop is found nothing is held, and the scanner is done.
        """
        if not self.stops:
            return text, ""
        self.held += text
        # In all that is held, not in the new text alone: a stop string may be cut anywhere.
        occurrences = [
            (at + len(stop), at, stop) for stop in self.stops if (at := self.held.find(stop)) >= 0
        ]
        if occurrences:
            # The first to be complete, as if the text had come character by character.
            _, at, stop = min(occurrences)
            sent, self.held = self.held[:at], ""
            return sent, stop
        # Only what may yet become a stop string is held: all else reaches the client at once.
        keep = max(overlap(self.held, stop) for stop in self.stops)
        cut = len(self.held) - keep
        sent, self.held = self.held[:cut], self.held[cut:]
        return sent, ""

    def flush(self) -> str:
        """Return what is held: the text is over and no stop string came."""
        held, self.held = self.held, ""
        return held
