"""Models of runs: with initial weights, a parent's (`init_from=FOLDER`), or recorded ones."""

import argparse
import json
import logging
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import safetensors
import torch

from rope_lab.files import digest
from rope_lab.identity import BACKFILLED
from rope_lab.model.device import send
from rope_lab.model.hooks import Dims, prepared
from rope_lab.model.transformer import Transformer
from rope_lab.shipped import with_class_names
from rope_lab.tasks.task import Problem, Task
from rope_lab.text import FIND_RUNS, ConfigError, first_line, flat, show
from rope_lab.train import checkpoint, config, data, pattern, provenance, torch_state
from rope_lab.train.config import Config
from rope_lab.train.instantiate import config_errors
from rope_lab.train.run_folder import CODER, WEIGHTS, as_text, check_files, read

# Parameters of attention whose last rows project values, absent if keys are the values.
OF_QKV = ("qkv.weight", "qkv.bias")
# Arguments of a scheme that differs between layers.
OF_LAYERS = ("pattern", "first", "last", "from_last")

log = logging.getLogger(__name__)


def build_model(cfg: Config, vocabulary: int) -> Transformer:
    """The model with the initial weights of `cfg.seed`: the same for every scheme, except its own
    parameters.
    """
    # A run that begins from another with its scheme keeps windows that are a share of its length.
    trained = (cfg.parent or {}).get("seq_len", cfg.train.seq_len)
    dims = Dims(cfg.model.d_model, cfg.model.n_heads, trained, n_layers=cfg.model.n_layers)
    # torch.manual_seed would also seed GPUs, which stay as they are.
    random = torch.default_generator
    with torch_state.standard():
        random.manual_seed(data.torch_seed(cfg.seed, data.SCHEME_WEIGHTS))
        position = config.build_position(cfg, dims)
        random.manual_seed(data.torch_seed(cfg.seed, data.INITIAL_WEIGHTS))
        with config_errors():
            return Transformer(vocabulary, **asdict(cfg.model), position=position)


@torch.no_grad()
def try_positions(
    model: Transformer, text: data.HeldOutText, problems: list[list[Problem]], tokens: int
) -> None:
    """Raise ConfigError if the model cannot have the positions or documents that a task gives or,
    without any, those of the longest text, which has so many tokens.
    """
    model.eval()
    if text.batch.given and not _serves_rows(model, text):
        raise ConfigError(
            f"position: {type(model.position).__name__} does not serve positions that differ "
            "between rows, which this task has: rope-lab check says more"
        )
    device = model.embedding.weight.device
    for some in problems:
        pos = data.pad_positions([problem.positions for problem in some])
        if pos is not None:
            prepared(model.position, send(pos, device), torch.float32)
    if not text.batch.given:
        prepared(model.position, torch.arange(tokens, device=device), torch.float32)
    model.train()


def _serves_rows(model: Transformer, text: data.HeldOutText) -> bool:
    """Whether a row alone has the logits that it has beside another."""
    both, one = text.batch.rows(0, 2), text.batch.rows(0, 1)
    try:
        first_BTV = model(both.inputs_BT, **both.given)[:1]
    except ConfigError:
        raise
    except (RuntimeError, IndexError, ValueError):  # of shapes
        return False
    return torch.allclose(first_BTV, model(one.inputs_BT, **one.given), atol=1e-3)


def add_allow(parser: argparse.ArgumentParser) -> None:
    """Add --allow, whose values are `allowed_packages` of `load_run`."""
    about = "a package or file to import"
    parser.add_argument("--allow", action="append", default=[], metavar="PACKAGE", help=about)


def load_run(
    folder: Path, allowed_packages: list[str]
) -> tuple[Config, Task, Transformer, dict[str, Any]]:
    """A run's configuration, task, model with its last weights, and run.json. Raises ConfigError.

    The `progress` of run.json is that of these weights. Warns if the code has changed since. Only
    code of rope_lab, tasks and `allowed_packages` runs, whatever the folder says.
    """
    content = record_of(folder)
    cfg = config.from_record(content["config"], allowed_packages)
    kept = folder / CODER
    task = config.build_task(cfg, kept.read_bytes().decode() if kept.exists() else None)
    model = build_model(cfg, len(task.alphabet))
    saved = checkpoint.load(folder)
    if saved is None:
        remedy = "the training command resumes the run; fresh=true starts it over"
        raise ConfigError(f"{folder}: has no checkpoint; {remedy}")
    if saved["run_id"] != content["run_id"]:
        raise ConfigError(f"{folder}: its checkpoint is of another run, {saved['run_id']}")
    check_files(folder, content)
    before = saved["provenance"]
    if other := provenance.differences(before, provenance.code(cfg)) or provenance.edited(before):
        log.warning("%s: was run by other code, %s, whose results may differ", folder, other)
    _load(model, saved["model"], folder)
    return cfg, task, model, content | {"progress": {"steps": saved["step"]}}


def with_parent(cfg: Config) -> Config:
    """`cfg` with its parent's ids, if it has one. Raises ConfigError if it cannot begin from that
    run.
    """
    if not cfg.init_from:
        if cfg.train.steps == 0 and not cfg.parent:
            raise ConfigError(
                "train.steps=0: must be at least 1; 0 evaluates the run of init_from=FOLDER"
            )
        return cfg
    folder = Path(cfg.init_from).expanduser()
    key = f"init_from={cfg.init_from}"
    content = record_of(folder)
    if content["status"] != "finished":
        raise ConfigError(
            f"{key}: this run is {content['status']}; finish it, or take one that is finished"
        )
    if content["task"] != cfg.names.task:
        raise ConfigError(f"{key}: was trained on another task; set task={content['task']}")
    theirs = BACKFILLED | flat(content["config"])
    ours = flat(asdict(cfg))
    _check_model(key, theirs, ours)
    if content["seed"] != cfg.seed:  # children are paired by seed
        raise ConfigError(f"{key}: is of seed {content['seed']}; set seed={content['seed']}")
    ids = {name: content[name] for name in ("run_id", "recipe_id", "position", "scheme_id")}
    before = content["config"]
    grandparent = before.get("parent") or {}
    ids |= {"steps": content["progress"]["steps"] + grandparent.get("steps", 0)}
    if before["position"]["_target_"] == cfg.position["_target_"]:
        ids |= {"seq_len": grandparent.get("seq_len", before["train"]["seq_len"])}
    return replace(cfg, parent=ids | _weights_digest(folder / WEIGHTS))


def _check_model(key: str, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Raise ConfigError if a child's model is not its parent's. It may have another dropout, and
    norms of queries and keys may be added, with gains of 1, as DroPE does.
    """
    free = ["model.dropout"] if theirs["model.qk_norm"] else ["model.dropout", "model.qk_norm"]
    for name in ours:
        if name.startswith("model.") and name not in free and ours[name] != theirs.get(name):
            raise ConfigError(f"{key}: is another model; set {name}={show(theirs.get(name))}")


def _weights_digest(path: Path) -> dict[str, str]:
    """`{"weights": digest}` of the tensors in a safetensors file; empty if there is none."""
    if not path.is_file():
        return {}
    content = path.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")  # which lists metadata in any order
    return {"weights": digest(content[header:])}


def parent_changed(content: dict[str, Any] | None, cfg: Config) -> bool:
    """Whether the run of a run.json began from other weights than its parent has now, because that
    was trained again. `cfg` is resolved.
    """
    recorded = (content or {}).get("config", {}).get("parent") or {}
    known = recorded.get("weights")
    return bool(known and cfg.parent and cfg.parent.get("weights", known) != known)


def load_parent(cfg: Config, model: Transformer, task: Task) -> None:
    """Load the parent's weights; if its scheme is of another class, all but the scheme's own. A
    model without a value projection takes queries and keys alone. Raises ConfigError.
    """
    folder = Path(cfg.init_from).expanduser()
    path = folder / WEIGHTS
    try:
        with safetensors.safe_open(path, "pt") as file:
            about, weights = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        raise ConfigError(
            f"{path}: cannot be read ({first_line(error)}); train that run again"
        ) from None
    if about["run_id"] != cfg.parent["run_id"]:
        raise ConfigError(f"{path}: is of another run, {about['run_id']}; train that run again")
    check_files(folder, record_of(folder))
    if about["alphabet"] != as_text(task.alphabet):
        raise ConfigError(f"init_from={cfg.init_from}: has another vocabulary; set its task.… too")
    if _classes(json.loads(about["config"])["position"]) != _classes(cfg.position):
        weights = {
            name: weight for name, weight in weights.items() if not name.startswith("position.")
        }
    own = model.state_dict()
    taken = {name: weight for name, weight in weights.items() if name in own}
    for name, weight in taken.items():
        if name.endswith(OF_QKV):
            taken[name] = weight[: len(own[name])]
    _load(model, own | taken, Path(cfg.init_from))


def _classes(position: dict[str, Any]) -> dict[str, Any]:
    """The name of a scheme's class and of those within it, and which layers have which: parameters
    of layers are named by the numbers of these.
    """
    found: dict[str, Any] = {}
    for key, value in with_class_names(flat(position)).items():
        if key.endswith("_target_"):
            found[key] = value
        elif key.rpartition(".")[2] not in OF_LAYERS:
            continue
        elif isinstance(value, str):
            parts = pattern.read(key, pattern.canonical(value))
            found[key] = [(part.name, part.count) for part in parts]
        elif value:
            found[key] = value
    return found


def record_of(folder: Path) -> dict[str, Any]:
    """Content of run.json. Raises ConfigError if there is none."""
    if content := read(folder):
        return content
    if (folder / "run.json").exists():
        remedy = "the training command makes it again"
        raise ConfigError(f"{folder}: run.json cannot be read, or was changed; {remedy}")
    raise ConfigError(f"{folder}: is not a run folder, it has no run.json; {FIND_RUNS}")


def _load(model: Transformer, weights: dict[str, torch.Tensor], folder: Path) -> None:
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ConfigError(
            f"{folder}: does not fit this model: {str(error).splitlines()[-1].strip()}"
        ) from None
