"""Run identity: ids from names and arguments, never from the code's spelling; and the number of the
numerics.
"""

import json
import re
from dataclasses import dataclass, field

from rope_lab.files import digest
from rope_lab.text import Record, Settings, flat

# Raised by hand when initial weights, batches, losses or metrics of any of our schemes or tasks
# change: runs are paired and resumed within one number only. tests/test_numerics.py notices a
# change. 1 and 2 are of a few kept runs whose code is not proven to give today's numbers.
NUMERICS = 3

NAME = r"\w[\w-]{0,60}"  # of a task or scheme: part of the names of folders and figures

# The groups of settings that change a run's records.
GROUPS = ("task", "position", "model", "train", "eval", "device", "parent")
NOT_COUNTED = ("parent.position", "parent.weights")  # of the parent, named by its ids already
# Settings that were added after runs had been kept, and the value that earlier runs had. At that
# value a run is the run it was without the setting. A scheme within another scheme has the settings
# of `position` too.
BACKFILLED: Settings = {
    "model.init": "pytorch",
    "model.attention": "softmax",
    "model.kv_heads": None,
    "model.qk_norm": False,
    "model.conv": None,
    "model.smear": False,
    "model.gate": None,
    "model.sink": False,
    "train.optimizer": "adamw",
    "train.accumulate": 1,
    "train.processes": 1,
    "eval.lengths": [],
    "eval.problems_at_end": None,
    "task.shortest": None,
    "task.distinct": False,
    "position.value_fraction": 1.0,
    "position.value_base": None,
    "position.pairs": "neighbours",
    "position.delta_init": 0.0,
    "position.scaling": "none",
    "position.factor": 1.0,
    "position.original": None,
    "position.window": None,
    "position.temperature": 0.0,
    "position.floats": False,
    "train.weight_decay_on": "all",
    "train.min_lr": 0.0,
}
NESTED = re.compile(r"position\.(?:\w+\.)+(?=\w+$)")


@dataclass(frozen=True)
class Identity:
    """All that changes a run's records, and nothing else.

    task, position: the names under which they were chosen
    settings:       flat (`train.lr`), with the name of each class (`position.class`); none at its
                    backfilled default
    code:           group → digest of the user's own files, `{"position": "1f2e…"}`; empty if all
                    code is ours
    """

    task: str
    position: str
    seed: int
    settings: Settings
    code: dict[str, str] = field(default_factory=dict)

    @property
    def run_id(self) -> str:
        content = dict(vars(self))
        if not self.code:  # as runs without a user's files were hashed before there was `code`
            del content["code"]
        return _hash(content)

    @property
    def recipe_id(self) -> str:
        """Runs that share it may be compared: they differ only in scheme, seed and `code`."""
        return _hash({"task": self.task, "settings": self._part(of_scheme=False)})

    @property
    def scheme_id(self) -> str:
        """The scheme with its settings, which its name alone does not say."""
        return _hash(self._part(of_scheme=True))[:6]

    @property
    def run_name(self) -> str:
        """The name of the run's folder."""
        return f"{self.task}-{self.position}-s{self.seed}-{self.run_id}"

    def _part(self, of_scheme: bool) -> Settings:
        part = {}
        for key, value in self.settings.items():
            is_of_scheme = key.startswith(("position.", "parent.scheme_id"))
            if is_of_scheme == of_scheme and key != "parent.run_id":  # which differs by seed
                part[key] = value
        return part


def identify(task: str, position: str, seed: int, settings: Settings) -> Identity:
    """The identity of a run from its settings, nested or flat; groups other than GROUPS do not
    count.
    """
    counted, every = {}, flat(settings)
    for key, value in every.items():
        if key.partition(".")[0] not in GROUPS or key in NOT_COUNTED:
            continue
        if key == "parent.seq_len" and value == every.get("train.seq_len"):  # says nothing more
            continue
        if general(key) in BACKFILLED and value == BACKFILLED[general(key)]:
            continue
        if key.endswith("._target_"):
            key = key.removesuffix("_target_") + "class"
            value = str(value).rpartition(".")[2]
        counted[key] = value
    return Identity(task, position, seed, counted)


def general(key: str) -> str:
    """A setting of a scheme within another, `position.scheme.base`, as one of any scheme:
    `position.base`.
    """
    return NESTED.sub("position.", key)


def _hash(content: Record) -> str:
    """The first 12 hexadecimal digits of a SHA-256. 1 and 1.0 are the same number, whatever a file
    made of it.
    """
    exact = json.loads(
        json.dumps(content),
        parse_float=lambda x: int(float(x)) if float(x).is_integer() else float(x),
    )
    return digest(json.dumps(exact, sort_keys=True).encode())[:12]
