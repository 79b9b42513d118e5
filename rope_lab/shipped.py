"""The settings of conf/, read without importing the classes that it names: those of schemes would
load torch.
"""

import ast
import functools
import string
from typing import Any

from omegaconf import OmegaConf

from rope_lab.places import CONF, HERE, TASKS
from rope_lab.text import Settings, flat


@functools.cache
def shipped(name: str) -> Settings:
    """The settings of conf/<name>.yaml and the defaults of its class, flat; none if there is no
    such file.
    """
    path = CONF / f"{name}.yaml"
    if not path.exists():
        return {}
    return with_class_names(flat(_filled(OmegaConf.to_container(OmegaConf.load(path)))))


def choices(group: str) -> list[str]:
    """The names of the yaml files of a group of conf/."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def summary(group: str, name: str) -> str:
    """What a choice of a group is, in Markdown: the comment that begins its yaml file."""
    first_line = (CONF / group / f"{name}.yaml").read_text("utf-8").partition("\n")[0]
    return first_line.removeprefix("# ")


def recipe(task: str, scale: str) -> Settings:
    """The settings of a task at a scale, flat, but for those of its task and scheme."""
    return shipped("config") | shipped(f"recipe/{task}/{scale}")


def usual_task(task: str, scale: str) -> Settings:
    """The settings of a task at a scale, flat: `task.string_length`."""
    own = {f"task.{key}": value for key, value in shipped(f"task/{task}").items()}
    changed = shipped(f"recipe/{task}/{scale}")
    return own | {key: value for key, value in changed.items() if key.startswith("task.")}


def with_class_names(settings: Settings) -> Settings:
    """Flat settings in which `_target_` is the name of a class, whatever module it stands in."""
    return {
        key: value.rpartition(".")[2] if key.endswith("_target_") else value
        for key, value in settings.items()
    }


def _filled(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    own = {key: _filled(value) for key, value in node.items()}
    return _defaults(node["_target_"]) | own if "_target_" in node else own


def _defaults(target: str) -> Settings:
    """The default of each argument of a class, as its source says: a literal, or a constant of
    `string`.
    """
    module, _, name = target.rpartition(".")
    root = HERE.parent if module.startswith("rope_lab.") else TASKS.parent
    tree = ast.parse((root / f"{module.replace('.', '/')}.py").read_text("utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    while name in classes:
        for node in classes[name].body:
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                values = map(_value, reversed(node.args.defaults))
                arguments = [argument.arg for argument in reversed(node.args.args)]
                return dict(reversed([*zip(arguments, values, strict=False)]))
        name = classes[name].bases[0].id
    return {}


def _value(node: ast.expr) -> Any:
    return getattr(string, node.id) if isinstance(node, ast.Name) else ast.literal_eval(node)
