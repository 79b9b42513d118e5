"""Runs that begin with the weights of another: `init_from=FOLDER`, with another scheme or other settings of it."""

from dataclasses import asdict, replace
from pathlib import Path

import safetensors

from rope_lab.identity import BACKFILLED
from rope_lab.model.transformer import Transformer
from rope_lab.text import ConfigError, flat, show
from rope_lab.train.config import Config
from rope_lab.train.run import WEIGHTS, as_text, read
from tasks.base import Task


def resolve(cfg: Config) -> Config:
    """`cfg` with the ids of its parent, if it has one. Raises ConfigError if it cannot begin from that run."""
    if not cfg.init_from:
        if cfg.train.steps == 0 and not cfg.parent:
            raise ConfigError("train.steps=0: must be at least 1; 0 evaluates the run of init_from=FOLDER")
        return cfg
    key, folder = f"init_from={cfg.init_from}", Path(cfg.init_from).expanduser()
    content = read(folder)
    if content is None:
        raise ConfigError(f"{key}: is not a run folder, it has no readable run.json")
    if content["status"] != "finished":
        raise ConfigError(f"{key}: this run is {content['status']}; finish it, or take one that is finished")
    if content["task"] != cfg.names.task:
        raise ConfigError(f"{key}: was trained on another task; set task={content['task']}")
    theirs, ours = BACKFILLED | flat(content["config"]), flat(asdict(cfg))
    for name in ours:
        if name.startswith("model.") and name != "model.dropout" and ours[name] != theirs.get(name):
            raise ConfigError(f"{key}: is another model; set {name}={show(theirs.get(name))}")
    if content["seed"] != cfg.seed:  # a child is paired with those of other runs of its seed
        raise ConfigError(f"{key}: is of seed {content['seed']}; set seed={content['seed']}")
    ids = {name: content[name] for name in ("run_id", "recipe_id", "position", "scheme_id")}
    steps = content["progress"]["steps"] + (content["config"].get("parent") or {"steps": 0})["steps"]
    return replace(cfg, parent=ids | {"steps": steps})


def load_weights(cfg: Config, model: Transformer, task: Task) -> None:
    """Load the parent's weights; of two schemes what both have. Raises ConfigError if they do not fit."""
    with safetensors.safe_open(Path(cfg.init_from).expanduser() / WEIGHTS, "pt") as file:
        alphabet, weights = file.metadata()["alphabet"], {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if alphabet != as_text(task.alphabet):
        raise ConfigError(f"init_from={cfg.init_from}: has another vocabulary; set its task.… too")
    own = model.state_dict()
    try:
        model.load_state_dict(own | {name: weight for name, weight in weights.items() if name in own})
    except RuntimeError as error:
        raise ConfigError(f"init_from={cfg.init_from}: {str(error).splitlines()[-1].strip()}") from None
