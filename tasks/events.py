"""Events at irregular times: `?0a3b9c1d=cd#`: the letters of the last Δ.

The format is ours. A digit is the time since the event before, and the letter after it the event.
Positions have two axes: the token's number and its time; the time of the last event is also that of
the answer. A model that reads the number alone has to add the digits up.
"""

from string import ascii_lowercase

import numpy as np

from .base import MOST, PackedTask, check_between, check_letters, join, spell

DIGITS = "0123456789"


class Events(PackedTask):
    """Write the letters of the events that came within a time before the last one, itself among
    them.

    events:   of a series, at most
    shortest: events of the shortest series; None: all have `events`
    within:   Δ; an event exactly so long ago counts
    letters:  letters are drawn from these, uniformly

    Numbers of events are drawn equally often, and times between events are uniform, 0 to 9. A
    series is wholly in training or in evaluation. A row of text is one problem.
    """

    packs = False

    def __init__(
        self,
        events: int = 16,
        shortest: int | None = 4,
        within: int = 15,
        letters: str = ascii_lowercase,
    ):
        super().__init__()
        self.set_lengths(shortest, most=MOST // 3, events=events)
        check_between(0, MOST, within=within)
        check_letters(letters, reserved="?=#" + DIGITS, least=2)
        self.within, self.letters, self.alphabet = within, letters, "?=#" + DIGITS + letters

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Letters, then times since the event before, −1 beyond the series: [n, 2 · width]."""
        letters, length = self.draw_strings(rng, n)
        times = rng.integers(len(DIGITS), size=letters.shape)
        times = np.where(np.arange(self.width) < length, times, -1)
        return np.concatenate([letters, times], axis=1)

    def write(self, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        letters, times = np.split(drawn, 2, axis=1)
        pairs = np.stack([spell(DIGITS, times), spell(self.letters, letters)], axis=2)
        recent = np.where(self._recent(times), letters, -1)
        series = pairs.reshape(len(drawn), -1)
        return join("?", series, "="), join(spell(self.letters, recent), "#")

    def coordinates(self, prompts: np.ndarray) -> np.ndarray:
        """The time of each token."""
        is_digit = (prompts >= ord("0")) & (prompts <= ord("9"))
        return np.cumsum(np.where(is_digit, prompts - ord("0"), 0), axis=1)

    def attributes(self, drawn: np.ndarray) -> dict[str, np.ndarray]:
        """`events` of the series, and how many of them are `recent`."""
        letters, times = np.split(drawn, 2, axis=1)
        return {
            "events": (letters >= 0).sum(axis=1),
            "recent": self._recent(times).sum(axis=1),
        }

    def _recent(self, times: np.ndarray) -> np.ndarray:
        """The events of the answer, bool [n, width]."""
        at = np.cumsum(np.maximum(times, 0), axis=1)
        return (times >= 0) & (at >= at[:, -1:] - self.within)
