"""Complete commands, options and settings with Tab: `rope-lab completion SHELL` prints a script.

  bash  rope-lab completion bash > ~/.local/share/bash-completion/completions/rope-lab
  zsh   rope-lab completion zsh > FOLDER/_rope-lab, a folder of $fpath
  fish  rope-lab completion fish > ~/.config/fish/completions/rope-lab.fish

Print it again after an update: the names of schemes and tasks are written into it.
"""

import re
from pathlib import Path

from rope_lab.__main__ import COMMANDS, Command
from rope_lab.places import HERE, ROOT
from rope_lab.text import argument_parser
from rope_lab.train.settings import declared

OWN_FILES = "train.load"  # declares the option of commands that read runs of a user's own files
TAKE_OWN_FILES = ("sample", "probe")
TAKE_SETTINGS = ("train", "sweep", "table", "check", "bench")

BASH = """\
_rope_lab() {
    local word=${COMP_LINE:0:COMP_POINT} words before=""
    word=${word##* }
    case ${COMP_WORDS[1]}:$word in
{values}
        *=*) return ;;
{words}
    esac
    if ((COMP_CWORD == 1)); then
        words="{commands}"
    fi
    if [[ $word == *=* ]]; then  # a value, or the last of a list
        before=${word%"${word##*[=,]}"}
        word=${word##*[=,]}
        if [[ $COMP_WORDBREAKS == *=* ]]; then  # bash completes what is behind =
            before=${before#*=}
        fi
    fi
    COMPREPLY=($(compgen -P "$before" -W "$words" -- "$word"))
    if [[ ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace
    fi
}
complete -o default -F _rope_lab rope-lab
"""
ZSH = """\
#compdef rope-lab
if ((CURRENT == 2)); then
    compadd -- {commands}
    return
fi
case $words[2]:$PREFIX in
{values}
    *=*) _files ;;
{words}
esac
_files
"""


def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("completion", __doc__)
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")
    print(SHELLS[parser.parse_args(arguments).shell](), end="")


def choices() -> dict[str, list[str]]:
    """The values of settings that name a file of conf/."""
    conf = ROOT / "conf"
    found = {key: _stems(conf / key) for key in ("position", "task", "hydra/launcher")}
    scales = {path.stem for path in (conf / "recipe").glob("*/*.yaml")}
    return found | {"scale": sorted({"quick", *scales})}


def words(command: Command) -> list[str]:
    """All that may follow a command, files apart: options, names of settings with `=`, tables."""
    options = {"--help"}
    modules = [command.module]
    if command.name in TAKE_OWN_FILES:
        modules.append(OWN_FILES)
    for module in modules:
        source = (HERE / f"{module.replace('.', '/')}.py").read_text("utf-8")
        options.update(re.findall(r'"(--[a-z][a-z-]+)"', source))
    found = sorted(options)
    if command.name == "table":
        found += _stems(ROOT / "conf" / "table")
    if command.name == "completion":
        found += SHELLS
    if command.name in TAKE_SETTINGS:
        settings = {*choices(), *declared()}
        found += [f"{name}=" for name in sorted(settings)]
    return found


def _stems(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.yaml"))


def bash() -> str:
    values = [f'        *:{key}=*) words="{" ".join(each)}" ;;' for key, each in choices().items()]
    own = [
        f'        {name}:*) words="{" ".join(words(each))}" ;;' for name, each in COMMANDS.items()
    ]
    return _filled(BASH, values, own)


def zsh() -> str:
    values = [
        f"    *:{key}=*) compset -P '*[=,]'; compadd -- {' '.join(each)} ;;"
        for key, each in choices().items()
    ]
    own = [
        f"    {name}:*) compadd -S '' -- {' '.join(words(each))} ;;"
        for name, each in COMMANDS.items()
    ]
    return _filled(ZSH, values, own)


def _filled(script: str, values: list[str], own: list[str]) -> str:
    script = script.replace("{values}", "\n".join(values)).replace("{words}", "\n".join(own))
    return script.replace("{commands}", " ".join(COMMANDS))


def fish() -> str:
    lines = []
    for name, command in COMMANDS.items():
        lines.append(
            f"complete -c rope-lab -n __fish_use_subcommand -f -a {name} -d '{command.summary}'"
        )
        found = words(command)
        if name in TAKE_SETTINGS:
            found += [f"{key}={value}" for key, each in choices().items() for value in each]
        seen = f"-n '__fish_seen_subcommand_from {name}'"
        lines.append(f"complete -c rope-lab {seen} -a '{' '.join(found)}'")
    return "\n".join(lines) + "\n"


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}
