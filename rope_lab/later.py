"""Settings that came when runs had been kept already: at these values a run is what it was without them."""

CAME_LATER = {
    ("model", "init"): "pytorch",
    ("model", "attention"): "softmax",
    ("eval", "lengths"): [],
    ("eval", "problems_at_end"): None,
    ("task", "shortest"): None,
}
