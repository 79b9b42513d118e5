"""The settings of conf/, read without importing the classes that it names: those of schemes would
load torch.
"""

import ast
import functools
from typing import Any

from omegaconf import OmegaConf

from rope_lab.places import HERE, ROOT, TASKS
from rope_lab.text import flat


@functools.cache
def shipped(name: str) -> dict[str, Any]:
    """The settings of conf/<name>.yaml and the defaults of its class, flat; none if there is no
    such file.
    """
    path = ROOT / "conf" / f"{name}.yaml"
    return (
        with_class_names(flat(_filled(OmegaConf.to_container(OmegaConf.load(path)))))
        if path.exists()
        else {}
    )


def recipe(task: str, scale: str) -> dict[str, Any]:
    """The settings of a task at a scale, flat, but for those of its task and scheme."""
    return shipped("config") | shipped(f"recipe/{task}/{scale}")


def with_class_names(settings: dict[str, Any]) -> dict[str, Any]:
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


def _defaults(target: str) -> dict[str, Any]:
    """The default of each argument of a class, as its source says."""
    module, _, name = target.rpartition(".")
    root = HERE.parent if module.startswith("rope_lab.") else TASKS.parent
    source = (root / f"{module.replace('.', '/')}.py").read_text("utf-8")
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    while name in classes:
        for node in classes[name].body:
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                last = node.args.args[len(node.args.args) - len(node.args.defaults) :]
                pairs = zip(last, node.args.defaults, strict=True)
                return {
                    each.arg: ast.literal_eval(value)
                    for each, value in pairs
                    if not isinstance(value, ast.Name)
                }
        name = classes[name].bases[0].id
    return {}
