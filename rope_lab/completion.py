"""Complete commands, options and settings with Tab: `rope-lab completion SHELL` prints a script.

  bash  rope-lab completion bash > ~/.local/share/bash-completion/completions/rope-lab
  zsh   rope-lab completion zsh > FOLDER/_rope-lab, a folder of $fpath
  fish  rope-lab completion fish > ~/.config/fish/completions/rope-lab.fish

The script calls `rope-lab completion --line LINE`, which prints all that may end a command line.
"""

import re
from pathlib import Path

from rope_lab.__main__ import MODULES
from rope_lab.exporting.command import TARGETS, supported
from rope_lab.places import CONF, HERE
from rope_lab.shipped import choices, shipped
from rope_lab.text import Words, argument_parser, say
from rope_lab.train.settings import declared

TAKE_OWN_FILES = ("extend", "adopt", "sample", "probe")
TAKE_SETTINGS = ("compare", "ladder", "train", "sweep", "table", "check", "bench", "score")
OF_ASKING = ("--out", "--jobs", "--yes")  # of commands that make a bill
OF_OPTIONS = {  # the values of options; other options take files and numbers
    "--task": lambda: values("task"),
    "--scale": lambda: values("scale"),
    "--against": lambda: values("position"),
    "--contender": lambda: values("position"),
    "export --to": lambda: [*TARGETS],
    "--to": list,
    "--out": list,
    "--html": list,
}
SCRIPTS = {
    "bash": """\
_rope_lab() {  # $2: the part of the last word behind its last = sign
    local line=${COMP_LINE:0:COMP_POINT}
    local word=${line##* }
    COMPREPLY=($(rope-lab completion --line "$line"))
    COMPREPLY=("${COMPREPLY[@]#"${word%"$2"}"}")
    if [[ ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace
    fi
}
complete -o default -F _rope_lab rope-lab
""",
    "zsh": """\
#compdef rope-lab
local -a found
found=(${(f)"$(rope-lab completion --line "${(j: :)words[1,CURRENT-1]} $PREFIX")"})
compadd -S '' -- ${(M)found:#*=}
compadd -- ${found:#*=}
if ((! $#found)); then
    compset -P '*[=,]'
    _files
fi
""",
    "fish": """\
complete -c rope-lab -a '(rope-lab completion --line (commandline -cp | string collect))'
""",
}

NAMES = {  # of commands that take names
    "table": lambda: choices("table"),
    "export": supported,
    "completion": lambda: list(SCRIPTS),
    **dict.fromkeys(("compare", "score", "show", "bench"), lambda: choices("position")),
}


def main(arguments: Words = None) -> None:
    parser = argument_parser("completion", __doc__)
    parser.add_argument("shell", nargs="?", choices=SCRIPTS, metavar="SHELL")
    parser.add_argument("--line", help="a command line up to the cursor")
    given = parser.parse_args(arguments)
    if given.line is not None:
        say("\n".join(ends(given.line)))
    elif given.shell:
        say(SCRIPTS[given.shell].rstrip())
    else:
        parser.error("name a shell: bash, zsh or fish")


def ends(line: str) -> list[str]:
    """All that may stand at the end of a command line instead of its last word, files apart."""
    typed, _, word = line.rpartition(" ")
    return [each for each in _candidates(typed.split(), word) if each.startswith(word)]


def _candidates(before: list[str], word: str) -> list[str]:
    """What may stand there, whatever the last word begins with."""
    command = before[1] if len(before) > 1 else ""
    if not command:
        return [*MODULES, "--help", "--version"]
    if word.startswith("-"):
        return options(command)
    of_option = OF_OPTIONS.get(f"{command} {before[-1]}") or OF_OPTIONS.get(before[-1])
    if of_option:
        return of_option()
    if "=" in word:
        known = word[: max(word.rfind("="), word.rfind(",")) + 1]
        return [known + value for value in values(word.partition("=")[0])]
    found = NAMES[command]() if command in NAMES else []
    if command in TAKE_SETTINGS:
        found += [f"{name}=" for name in settings(before, word)]
    return found


def options(command: str) -> list[str]:
    """The options of a command, as its source names them, or `options.py` beside it."""
    if command not in MODULES:
        return []
    own = HERE / f"{MODULES[command].replace('.', '/')}.py"
    found = []
    for path in filter(Path.is_file, (own, own.with_name("options.py"))):
        text = path.read_text("utf-8")
        found += re.findall(r'\badd(?:_argument)?\(\s*"(--[a-z-]+)"', text)
        for given in re.findall(r"asking\.parser\((.*)\)", text):  # its options are those of many
            limit = re.search("--[a-z-]+", given)
            found += [*OF_ASKING, limit[0] if limit else "--budget"]
    if command in TAKE_OWN_FILES:
        found.append("--allow")
    return sorted({"--help", *found})


def settings(words: list[str], last: str) -> list[str]:
    """The names of all settings; behind `task.` and `position.` those of the chosen one."""
    names = {"hydra/launcher", "scale", *declared()}
    chosen: dict[str, str] = {}
    for default in shipped("config")["defaults"]:
        chosen |= default if isinstance(default, dict) else {}
    chosen |= dict(word.split("=", 1) for word in words if "=" in word)
    group = last.partition(".")[0]
    if group in ("task", "position"):
        own = shipped(f"{group}/{chosen[group]}")
        names |= {f"{group}.{key}" for key in own if key != "_target_"}
    return sorted(names)


def values(setting: str) -> list[str]:
    """The values of a setting that names a file of conf/."""
    if setting == "scale":
        return sorted({path.stem for path in CONF.glob("recipe/*/*.yaml")})
    return choices(setting) if setting in ("task", "position", "hydra/launcher") else []
