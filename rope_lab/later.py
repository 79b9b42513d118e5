"""Settings that came when runs had been kept already: at these values a run is what it was without them."""

CAME_LATER = {
    "model.init": "pytorch",
    "model.attention": "softmax",
    "eval.lengths": [],
    "eval.problems_at_end": None,
    "task.shortest": None,
    "position.value_fraction": 1.0,
    "position.value_base": None,
    "position.scheme.value_fraction": 1.0,  # of a scheme within another
    "position.scheme.value_base": None,
}
