"""Write a scheme as one file that imports no rope_lab: `rope-lab export SCHEME --to torch`.

--to torch: a layer of attention, with GQA, cached decoding and padding. --to transformers: a Llama,
for AutoModelForCausalLM, generate and left padding. Beside it stands a test, which checks that it
computes what rope_lab computes, with a cache and with padding: run it with pytest or python.
"""

import ast
import json
import re
from pathlib import Path
from string import Template

from rope_lab.files import check_ours, check_writable, write_whole
from rope_lab.places import HERE
from rope_lab.text import ConfigError, Words, argument_parser, errors_as_exit, nearest, say

PARTS = HERE / "exporting" / "parts"
SHARED = ("base", "to_torch", "to_transformers", "__init__")
TARGETS = ("torch", "transformers")
MARK = "# Written by rope-lab export."
TITLE = Template(
    """$mark $about
# The test beside it compares it with rope_lab. Licence: MIT, see https://opensource.org/license/mit
"""
)
IMPORTS = {  # of all parts of a file
    "torch": """from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn""",
    "transformers": """from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaAttention""",
}
ENDS = {
    "torch": Template(
        '''class ${short}Attention(PositionAttention):
    """Causal multi-head attention with $short, x [B, T, D] → [B, T, D]."""

    position_class = ${short}Position
'''
    ),
    "transformers": Template(
        """class ${short}Config(PositionConfig):
    model_type = "llama_$name"


class ${short}ForCausalLM(PositionForCausalLM):
    config_class = ${short}Config
    position_class = ${short}Position


register(${short}Config, ${short}ForCausalLM)
"""
    ),
}


def supported() -> list[str]:
    """The names of the schemes that can be exported."""
    return sorted(path.stem for path in PARTS.glob("*.py") if path.stem not in SHARED)


def exported(name: str, target: str) -> str:
    """The file of a supported scheme."""
    about, bodies = {}, []
    for part in ("base", name, f"to_{target}"):
        about[part], body = split((PARTS / f"{part}.py").read_text("utf-8"))
        bodies.append(body)
    short = short_name(name)
    end = ENDS[target].substitute(short=short, name=name)
    title = TITLE.substitute(mark=MARK, about=f"{short} for {target}.")
    texts = "\n\n".join([about[name], about[f"to_{target}"], about["base"]])
    return "\n\n".join([f'{title}"""{texts}\n"""', IMPORTS[target], *bodies, end])


def short_name(name: str) -> str:
    """The name of a scheme in the field: the class of its part without `Position`."""
    text = (PARTS / f"{name}.py").read_text("utf-8")
    return re.search(r"class (\w+)Position\(", text)[1]


def split(source: str) -> tuple[str, str]:
    """The docstring of a module, and all behind its imports."""
    tree = ast.parse(source)
    rest = tree.body[1:]
    first = next(node for node in rest if not isinstance(node, ast.Import | ast.ImportFrom))
    body = "\n".join(source.splitlines()[first.lineno - 1 :])
    return str(ast.get_docstring(tree)), body.strip() + "\n"


def write(name: str, target: str, folder: Path) -> list[Path]:
    """Write the file and its test; returns their paths. Raises ConfigError, OSError."""
    from rope_lab.exporting import parity  # here: completion needs no torch

    if name not in supported():
        hint = nearest(name, supported(), "")
        raise ConfigError(f"{name}: cannot be exported; {hint}")
    module = f"{name}_{target}"
    test = (PARTS.parent / f"test_{target}.txt").read_text("utf-8")
    short = short_name(name)
    rows = [f"    {json.dumps(row)}," for row in parity.outputs(name, short)]
    numbers = "\n".join(["[", *rows, "]"])
    filled = Template(test).substitute(module=module, short=short, expected=numbers)
    contents = {
        folder / f"{module}.py": exported(name, target),
        folder / f"test_{module}.py": f"{MARK} The parity test of {module}.py.\n{filled}",
    }
    for path, content in contents.items():
        check_ours(path, MARK)
        if path.exists() and path.read_bytes() != content.encode():
            stays = "was edited, or another version wrote it, and stays; move it away"
            raise ConfigError(f"{path}: {stays}, or choose another folder, --out FOLDER")
    check_writable(folder.absolute())
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in contents.items():
        write_whole(path, content.encode())
    return [*contents]


@errors_as_exit()
def main(arguments: Words = None) -> None:
    about = f"{__doc__}\nSCHEME is one of {', '.join(supported())}."
    parser = argument_parser("export", about)
    parser.add_argument("scheme", metavar="SCHEME")
    parser.add_argument("--to", choices=TARGETS, required=True)
    parser.add_argument("--out", type=Path, default=Path(), metavar="FOLDER", help="default: here")
    given = parser.parse_args(arguments)
    for path in write(given.scheme, given.to, given.out):
        say(f"written: {path}")
