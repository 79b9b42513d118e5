"""The page of a scheme in Markdown, the same in a terminal, and in HTML."""

import shlex
from dataclasses import dataclass

from rope_lab.model.portrait import Portrait
from rope_lab.results.views import portraits, render
from rope_lab.results.views.tables import Table, escaped, markdown
from rope_lab.showing import measured
from rope_lab.showing.costs import LAYERS, READ, TRAINED, Cost, step_time
from rope_lab.showing.facts import Facts, kind_title
from rope_lab.showing.measured import Measured

UP = "../.."  # from a page in docs/schemes to the root
ALIKE = (
    "In the picture all tokens are the same{}. *Scores before training*: the logarithm of the "
    "weight that the last token gives to each token before it, relative to its own."
)
CONTENT = ", but the layer's input is random, an example of content"
AXES = "Each axis counts tokens, as in a text."
COORDINATES = "coordinates"  # the kind whose positions have axes
VALUES = (
    "*Rotation of values*: the cosine between a feature of a value and its part in the output; 1: "
    "not rotated."
)
WINDOWED = (
    "Layers with a window need only its last tokens. In a model of {} layers a cache that keeps no "
    "others holds {:.2f} of RoPE's numbers, for a text {} times as long as those of training. Ours "
    "keeps all tokens."
)
SHARED = "Values are keys, of which a cache needs one; ours stores both."
REACH = (
    "*Scores that one token changes*: the scores that change if only the token 20 back resembles "
    "the query."
)
SCORES = (
    "Share of problems correct, or e^(−loss) of text and of Prefix, ± half of the 95% interval. "
    "†: at the best of three learning rates; compare such cells only with each other. "
    "[All schemes]({}/results/scores.md)."
)
USE = """```python
import rope_lab

scheme = rope_lab.scheme("{name}", d_model=768, n_heads=12, n_layers=12)
```"""


@dataclass(frozen=True)
class Shown:
    """All that a page shows of a scheme.

    word: how one names it on the command line, a name or a file
    windowed: as costs.windowed
    exports: the targets of rope-lab export that support it
    """

    word: str
    facts: Facts
    portrait: Portrait
    cost: Cost
    baseline: Cost
    measured: Measured
    exports: tuple[str, ...] = ()
    windowed: float | None = None

    @property
    def title(self) -> str:
        return self.measured.catalogue.title(self.facts.name)

    @property
    def quoted(self) -> str:
        """The word as a shell takes it."""
        return shlex.quote(self.word)


def page(shown: Shown, figure: str = "") -> str:
    """The page in Markdown.

    figure: the path of the picture, relative to the page; empty: without picture
    """
    facts = shown.facts
    parts = [f"# {escaped(shown.title)}", head(shown)]
    if facts.summary:
        parts.append(f"{facts.summary[:1].upper()}{facts.summary[1:]}.")
    parts += ["## Formula", *facts.formula]
    if figure:
        parts.append(f"![{escaped(alt(shown))}]({figure})")
    parts += [caption(shown), "## Cost", markdown(costs(shown))]
    if shown.cost.shares_values:
        parts.append(SHARED)
    if shown.windowed is not None:
        parts.append(WINDOWED.format(LAYERS, shown.windowed, READ // TRAINED))
    parts += results(shown)
    parts += ["## Use it", *use(shown)]
    if facts.settings:
        parts += ["## Settings", "\n".join(f"- {line}" for line in facts.settings)]
    return "\n\n".join(filter(None, parts)) + "\n"


def head(shown: Shown) -> str:
    """The line below the title: how it is named, and links to its source."""
    facts = shown.facts
    if not facts.kind:
        return f"`position={shown.word}` · class `{facts.cls.__name__}`"
    title, _ = kind_title(facts.kind)
    module = facts.cls.__module__.replace(".", "/")
    words = [
        f"`position={facts.name}`",
        f"[{title}](README.md#{title.lower().replace(' ', '-')})",
        f"[class `{facts.cls.__name__}`]({UP}/{module}.py)",
        f"[settings]({UP}/conf/position/{facts.name}.yaml)",
    ]
    if facts.code:
        words.append(f"[its authors' code]({facts.code})")
    return " · ".join(words)


def alt(shown: Shown) -> str:
    """The picture in words."""
    return f"{shown.title} before training: {', '.join(y for _, y in panels(shown.portrait))}"


def panels(portrait: Portrait) -> dict[tuple[str, str], portraits.Curves]:
    """The panels of the picture: curves by their title and that of their y axis."""
    found = {("Scores before training", "ln(weight / weight of itself)"): portrait.scores}
    if portrait.values:
        found["Rotation of values", "cosine to the value"] = portrait.values
    if portrait.reach:
        found["Scores that one token changes", "change of the score"] = portrait.reach
    return found


def picture(portrait: Portrait) -> bytes:
    """The picture as SVG."""
    return render.svg(portraits.picture(panels(portrait)))


def caption(shown: Shown) -> str:
    """What the panels show."""
    portrait = shown.portrait
    sentences = [ALIKE.format(CONTENT if portrait.content else "")]
    sentences += [AXES] if shown.facts.kind == COORDINATES else []
    sentences += [VALUES] if portrait.values else []
    sentences += [REACH] if portrait.reach else []
    return " ".join(sentences)


def costs(shown: Shown) -> Table:
    """Parameters, KV cache and step time beside RoPE's."""
    cost, baseline = shown.cost, shown.baseline
    time = step_time(shown.facts.name) or f"not measured: rope-lab bench rope {shown.quoted}"
    if shown.facts.name == shown.measured.catalogue.baseline:
        time = "1"
    return Table(
        [
            {
                "parameters (width 128, 3 layers)": f"{cost.parameters:,}",
                "more than RoPE": f"{cost.parameters - baseline.parameters:+,}",
                "KV cache, numbers per token and layer": f"{cost.cached:g}",
                "KV cache / RoPE's": f"{cost.cached / baseline.cached:.2f}",
                "step time / RoPE's": time,
            }
        ]
    )


def results(shown: Shown) -> list[str]:
    """Scores and planned tests; a sentence if there are none."""
    name = shown.facts.name
    kept = shown.measured
    parts = ["## Scores"]
    table = measured.scores(name, kept)
    none_yet = f"None yet: `rope-lab score {shown.quoted}` makes them."
    parts += [markdown(table), SCORES.format(UP)] if table.rows else [none_yet]
    parts.append(pages(shown))
    first, second = measured.tests_of(name, kept.tests)
    if first or second:
        parts.append("## Planned tests")
    if first:
        parts += [markdown(measured.verdicts(first, kept.catalogue)), measured.DIFFERENCE]
    if second:
        word = "test" if second == 1 else "tests"
        plan = f"[planned {word}]({UP}/results/plan.md)"
        parts.append(f"Other schemes were compared with it in {second} {plan}.")
    return parts


def pages(shown: Shown) -> str:
    """Links to the pages of results with runs of the scheme; empty for the baseline, which most
    have.
    """
    name, kept = shown.facts.name, shown.measured
    links = [
        f"[{title}]({UP}/results/{page})"
        for page, (title, schemes) in kept.pages.items()
        if name in schemes and name != kept.catalogue.baseline
    ]
    return f"Pages with runs of it: {' · '.join(links)}." if links else ""


def use(shown: Shown) -> list[str]:
    """How to train it, and how to take it into a model of one's own."""
    facts = shown.facts
    words = shlex.quote(f"position={shown.word}")
    if facts.task:
        words = f"task={facts.task} {words}"
    here = f"`rope-lab train {words}` trains it here. "
    parts = [
        f"{here}[In your own model]({UP}/docs/elsewhere.md):",
        USE.format(name=shown.word),
    ]
    if shown.exports:
        command = f"`rope-lab export {facts.name} --to {shown.exports[0]}`"
        others = ", ".join(f"`{target}`" for target in shown.exports[1:])
        parts.append(f"As one file without rope_lab: {command}, or {others}.")
    if facts.kind:
        parts.append(f"Released in: {facts.released or 'no widely used model that we know'}.")
    if facts.notes:
        parts.append(facts.notes)
    return parts
