"""Schemes of ours that a user's own scheme is a small change of."""

from rope_lab.launch.jobs import Job
from rope_lab.shipped import choices, shipped
from rope_lab.train import instantiate


def relatives(job: Job) -> list[str]:
    """The names of our schemes that share the class which the scheme of a run extends; none if it
    is one of ours, or extends none.
    """
    cls = next(instantiate.classes(job.cfg.position))
    if cls.__module__.startswith("rope_lab."):
        return []
    ours = [each for each in cls.__mro__ if each.__module__.startswith("rope_lab.model.schemes.")]
    if not ours:
        return []
    extended = ours[0].__name__
    every = choices("position")
    return [name for name in every if shipped(f"position/{name}")["_target_"] == extended]
