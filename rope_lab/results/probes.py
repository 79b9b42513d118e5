"""What `python -m rope_lab.probe` found of a run, as it is kept in a .json."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from rope_lab import compat
from rope_lab.files import read_file

MOST_BYTES = 2**26  # of what probes found


@dataclass(frozen=True)
class Outcome:
    """A run under a probe: loss in nats per answer token, share of problems right; or why it cannot be evaluated.

    wavelengths: the shortest and the longest that were ablated, in positions
    """

    probe: str
    loss: float | None = None
    accuracy: float | None = None
    cannot: str = ""
    wavelengths: tuple[float, float] | None = None

    @property
    def label(self) -> str:
        """The probe, with its wavelengths."""
        if self.wavelengths is None:
            return self.probe
        first, last = (f"{length:,.3g}" if length < 1000 else f"{length:,.0f}" for length in self.wavelengths)
        return f"{self.probe} (wavelength {first}{f' to {last}' if first != last else ''})"


@dataclass(frozen=True)
class Probed:
    """A run and its outcomes, that of the run as it is first."""

    task: str
    position: str
    scale: str
    seed: int
    outcomes: list[Outcome]

    @property
    def costs(self) -> dict[str, float]:
        """The increase of the held-out loss under each probe that the run could take."""
        return {o.label: o.loss - self.outcomes[0].loss for o in self.outcomes[1:] if not o.cannot}


def read(path: Path) -> Probed:
    """What a .json holds. Raises OSError, or a ValueError, LookupError, TypeError or AttributeError."""
    found = json.loads(read_file(path, MOST_BYTES))
    probed = TypeAdapter(Probed).validate_python(found | {"outcomes": [outcome(o) for o in found["outcomes"]]})
    whole, *others = probed.outcomes
    if whole.loss is None or any(o.loss is None and not o.cannot for o in others):
        raise ValueError("holds outcomes without a loss")
    return probed


def outcome(recorded: dict[str, Any]) -> Outcome:
    """An outcome of a report, also of one written under old names."""
    found = Outcome(**{compat.OUTCOMES.get(key, key): value for key, value in recorded.items()})
    return replace(found, probe=renamed(found.probe))


def renamed(probe: str) -> str:
    """A probe by the name that it has now."""
    return next((new + probe.removeprefix(old) for old, new in compat.PROBES.items() if probe.startswith(old)), probe)
