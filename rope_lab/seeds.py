"""Lists of seeds as tables and plans write them."""

from typing import Annotated, Any

from pydantic import BeforeValidator

MOST = 10_000


def parse(given: Any) -> Any:
    """The seeds of `8-31`, of one seed, or of a list. Raises ValueError."""
    if isinstance(given, list):
        return given
    first, _, last = str(given).partition("-")
    if not (first.isdigit() and (last or first).isdigit()):
        raise ValueError("must be seeds, 8-31 for example")
    seeds = range(int(first), int(last or first) + 1)
    if not seeds:
        raise ValueError("must be seeds from the lower to the higher, 8-31 for example")
    if len(seeds) > MOST:
        raise ValueError(f"must be at most {MOST:,} seeds")
    return list(seeds)


Seeds = Annotated[list[int], BeforeValidator(parse)]
