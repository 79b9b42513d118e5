"""Probes: each does to the model what it says, and one that cannot be is one clear message."""

import json
import os

import matplotlib as mpl
import pytest
import torch
from conftest import SCHEMES, only_folder
from trained import make_scheme, run

from rope_lab import files, probe, sample
from rope_lab.model.positions import Dims, Randomized, Rotary
from rope_lab.model.transformer import Transformer
from rope_lab.results import probe_pages, probes
from rope_lab.results.figures import STYLE
from rope_lab.text import ConfigError
from rope_lab.train import checkpoint, data, provenance

V, DIMS = 11, Dims(24, 3, max_len=32)
NOTHING = '{"task": "t", "position": "p", "seed": 0, "scale": "s", "run": {}, "probe": {}, "outcomes": []}'
TOKENS = torch.randint(V, (2, 20), generator=torch.Generator().manual_seed(1))


def make_model(scheme, layers: int = 2, attention: str = "softmax") -> Transformer:
    torch.manual_seed(0)
    scheme = make_scheme(scheme, DIMS) if isinstance(scheme, str) else scheme
    return Transformer(V, attention, 24, layers, 3, "pre", "pytorch", 0.0, scheme).double()


def probed(name: str, what: str, **model) -> torch.Tensor:
    made = make_model(name, **model)
    made.position = probe.changed(what, made)
    return made(TOKENS)


@pytest.mark.parametrize(
    ("name", "what", "same_as"),
    [
        ("rope", "ablate=qk", {}),
        ("roper", "ablate=vo", {"q": 1, "k": 1}),
        ("roper", "ablate=v", {"q": 1, "k": 1, "o": -1}),
        ("roper", "ablate=o", {"q": 1, "k": 1, "v": 1}),
        ("roper_double_rotation", "ablate=qko", {"v": 2}),
        ("rope_partial", "ablate=qk", {}),
        ("p_rope", "ablate=qk", {}),
        ("roper_fast", "ablate=vo", {"q": 1, "k": 1}),
        ("roper_fast", "ablate=qk", {"v": 1, "o": -1, "value_fraction": 0.5, "value_base": 100.0}),
        ("roper_fast", "ablate=qkvo", {}),
    ],
)
def test_what_is_ablated_is_not_rotated(name, what, same_as):
    expected = make_model(Rotary(DIMS, **same_as))(TOKENS)
    torch.testing.assert_close(probed(name, what), expected, rtol=0, atol=1e-12)
    assert (make_model(name)(TOKENS) - expected).abs().max() > 1e-3


def test_pairs_ablated_are_those_named():
    """The lowest frequency of four is what p-RoPE does not rotate at p = 3/4."""
    expected = make_model("p_rope")(TOKENS)
    torch.testing.assert_close(probed("rope", "ablate=qk:3"), expected, rtol=0, atol=1e-12)
    every = probed("rope", "ablate=qk:0-3")
    torch.testing.assert_close(every, probed("rope", "ablate=qk"), rtol=0, atol=0)
    assert (probed("rope", "ablate=qk:1-2") - every).abs().max() > 1e-3


@pytest.mark.parametrize(("name", "rotated"), [("rope", 4), ("rope_partial", 2), ("p_rope", 3), ("randomized_rope", 4)])
def test_all_probes_ablate_each_rotated_pair(name, rotated):
    made = make_model(name)
    expected = [f"ablate=qk:{pair}" for pair in range(rotated)]
    assert [p for p in probe.all_probes(made, 64) if ":" in p] == expected
    with pytest.raises(ConfigError, match=f"the pairs of a head that are rotated in qk are 0-{rotated - 1}"):
        probe.changed(f"ablate=qk:{rotated}", made)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({"q": 1}, ["ablate=q"]),
        ({"v": 1}, ["ablate=v"]),
        ({"k": 1, "v": 2, "o": -1}, ["ablate=k", "ablate=v", "ablate=o", "ablate=vo"]),
        ({}, []),
    ],
)
def test_all_probes_ablate_each_rotated_part(times, expected):
    probes = [p for p in probe.all_probes(make_model(Rotary(DIMS, **times)), 64) if p.startswith("ablate")]
    assert [p for p in probes if ":" not in p] == expected
    scores, values = "".join(filter("qk".__contains__, times)), "".join(filter("vo".__contains__, times))
    assert [p for p in probes if ":" in p] == [
        f"ablate={parts}:{i}" for parts in (scores, values) if parts for i in range(4)
    ]


@pytest.mark.parametrize("name", ["pope", "pope_roper"])
def test_pope_is_probed_feature_by_feature(name):
    """Without their rotation queries and keys keep the learned phases: Σ_c μ(q_c) μ(k_c) cos δ_c."""
    made = make_model(name)
    features = [f"ablate=qk:{c}" for c in range(8)]
    assert [p for p in probe.all_probes(made, 64) if "qk:" in p] == features
    assert probe.wavelengths("ablate=qk:0-7", made) == pytest.approx((6.283185, 6.283185 * 10_000 ** (7 / 8)))
    with torch.no_grad():
        made.position.delta.normal_()
    whole, outcomes = made(TOKENS), {}
    trained = made.position
    for what in ("ablate=qk", "ablate=q:3", "ablate=k:3", "ablate=qk:3"):
        made.position = probe.changed(what, made)
        outcomes[what] = made(TOKENS)
        made.position = trained
    assert len({tuple(o.flatten().tolist()) for o in (whole, *outcomes.values())}) == 5
    for part in "qk":
        trained.theta[part][3] = 0
    torch.testing.assert_close(outcomes["ablate=qk:3"], made(TOKENS), rtol=0, atol=1e-12)
    for part in "qk":
        trained.theta[part].zero_()
    torch.testing.assert_close(outcomes["ablate=qk"], made(TOKENS), rtol=0, atol=1e-12)
    made = make_model(name)
    if name == "pope":
        with pytest.raises(ConfigError, match="ablate=v: PoPE has no such part, it rotates only q, k"):
            probe.changed("ablate=v", made)
    else:
        assert [p for p in probe.all_probes(made, 64) if "vo:" in p] == [f"ablate=vo:{i}" for i in range(4)]
        probe.changed("ablate=qkvo", made)


def test_values_that_are_rotated_in_fewer_pairs_are_probed_in_those():
    scheme = Rotary(DIMS, q=1, k=1, v=1, o=-1, value_fraction=0.5, value_base=100.0)
    fast = make_model(scheme)
    assert [p for p in probe.all_probes(fast, 64) if ":" in p] == [
        *(f"ablate=qk:{i}" for i in range(4)),
        *(f"ablate=vo:{i}" for i in range(2)),
    ]
    assert probe.wavelengths("ablate=vo:0-1", fast) == pytest.approx((6.283185, 6.283185 * 100**0.25))
    assert probe.wavelengths("ablate=qkvo:1-3", fast) == pytest.approx((6.283185 * 100**0.25, 6283.185))
    both = make_model(scheme)
    both.position = probe.changed("ablate=vo:1", fast)
    one = make_model(Rotary(DIMS, q=1, k=1, v=1, o=-1, value_fraction=0.25))
    torch.testing.assert_close(both(TOKENS), one(TOKENS), rtol=0, atol=1e-12)


def test_where_nothing_is_rotated_nothing_can_be_ablated():
    bare = make_model(Rotary(DIMS))
    assert not [p for p in probe.all_probes(bare, 64) if p.startswith("ablate")]
    with pytest.raises(ConfigError, match="Rotary has no such part, it rotates nothing"):
        probe.changed("ablate=qk", bare)


def test_a_label_has_the_wavelengths_that_are_ablated():
    """2π · 10000^(2i/8) positions for pair i of four."""
    rope = make_model("rope")
    assert probe.wavelengths("ablate=qk:0", rope) == pytest.approx((6.283185, 6.283185))
    assert probe.wavelengths("ablate=qk:1-3", rope) == pytest.approx((62.83185, 6283.185))
    assert probe.wavelengths("ablate=qk", rope) is probe.wavelengths("shift=3", rope) is None
    assert (
        probe.Outcome("ablate=qk:1-3", wavelengths=(62.8, 6283.2)).label == "ablate=qk:1-3 (wavelength 62.8 to 6,283)"
    )
    assert probe.Outcome("ablate=qk:0", wavelengths=(6.28, 6.28)).label == "ablate=qk:0 (wavelength 6.28)"


def test_without_rotation_scores_of_xpos_decay_all_the_same():
    """Scores of pair i are multiplied by ζᵢ^(distance/512), and nothing is rotated."""
    scheme = probe.changed("ablate=qk", make_model("xpos"))
    pos, qkv = torch.tensor([0, 100]), torch.ones(1, 2, 3, 3, 8, dtype=torch.float64)
    q, k, _ = scheme.heads(qkv, scheme.prepare(pos, torch.float64))[0, :, :, 0].unbind(1)
    expected = [((2 * (i // 2) / 8 + 0.4) / 1.4) ** (100 / 512) for i in range(8)]
    assert (q[1] * k[0]).tolist() == pytest.approx(expected, abs=1e-12)
    far = scheme.prepare(torch.tensor([28_000]), torch.float32)[0]
    assert far.isfinite().all()
    assert (far[0, :2, 0, :, 0] > 0).all()


def test_random_positions_stay_as_they_were_drawn():
    """A shift moves what was drawn, and the scheme behind the random positions is ablated."""
    made, bare = make_model("randomized_rope"), make_model("rope")
    made.position.draw(3, 32)
    drawn = made.position.drawn[:20]
    for what, expected in (("shift=7", bare(TOKENS, drawn + 7)), ("ablate=qk", make_model("none")(TOKENS))):
        model = make_model("randomized_rope")
        model.position = probe.changed(what, model)
        model.position.draw(3, 32)
        torch.testing.assert_close(model(TOKENS), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [s for s in SCHEMES if not isinstance(make_scheme(s, DIMS), Randomized)])
def test_a_shift_moves_every_position(name):
    made = make_model(name)
    expected = made(TOKENS[:, :10], torch.arange(10) + 7)
    made.position = probe.changed("shift=7", made)
    torch.testing.assert_close(made(TOKENS[:, :10]), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["none", "rope", "alibi"])
def test_a_window_hides_what_is_before_it_and_nothing_else(name):
    made = make_model(name, layers=1)
    embedded = []
    made.embedding.register_forward_hook(lambda m, i, output: embedded.append(output) or output.retain_grad())
    made.position = probe.changed("window=5", made)
    made(TOKENS)[0, 12].square().sum().backward()
    gradient = embedded[0].grad[0].abs().sum(-1)
    assert (gradient[8:13] > 1e-9).all()
    assert (gradient[:8] == 0).all()
    assert (gradient[13:] == 0).all()


@pytest.mark.parametrize(
    ("name", "what", "message"),
    [
        ("alibi", "ablate=qk", "ablate=qk: Alibi has no such part, it rotates nothing"),
        ("rope", "ablate=v", "ablate=v: Rotary has no such part, it rotates only q, k"),
        ("rope", "ablate=qk:4", "the pairs of a head that are rotated in qk are 0-3"),
        ("roper_fast", "ablate=vo:2", "the pairs of a head that are rotated in vo are 0-1"),
        ("rope", "ablate=qk:2-1", "the pairs of a head that are rotated in qk are 0-3"),
        ("rope", "shift=1000000000", "with N below 10⁹"),
        ("rope", "window=1000000000", "with N below 10⁹"),
        ("rope", "ablate=x", "must be shift=N"),
        ("rope", "window=0", "must be shift=N"),
        ("rope", "noise", "must be shift=N"),
    ],
)
def test_a_probe_without_its_part_is_one_clear_message(name, what, message):
    with pytest.raises(ConfigError, match=message):
        probe.changed(what, make_model(name))


def test_linear_attention_has_no_window():
    with pytest.raises(ConfigError, match="window=4: linear attention has no scores"):
        probe.changed("window=4", make_model("rope", attention="linear"))
    assert not [p for p in probe.all_probes(make_model("rope", attention="linear"), 64) if p.startswith("window")]


def test_the_command_line(tiny, tmp_path, capsys):
    content = run([*tiny, "position=roper"])
    folder = only_folder(tmp_path / "runs")
    probe.main([str(folder)])
    shown = capsys.readouterr().out
    found = json.loads((folder / "probes.json").read_text())
    whole, *others = found["outcomes"]
    assert found["run"] == found["probe"]
    assert found["run"]["numerics"] == content["provenance"]["numerics"]
    assert whole["loss"] == pytest.approx(content["metrics"]["eval/loss"], rel=1e-6)
    assert whole["accuracy"] == pytest.approx(content["metrics"]["eval/accuracy"])
    assert [o["probe"] for o in others] == probe.all_probes(make_model("roper"), 64)
    assert all(o["probe"] in shown for o in others)
    assert (folder / "probes.svg").stat().st_size > 1000
    before = (folder / "probes.json").read_bytes()
    probe.main([str(folder), "ablate=vo"])
    assert "ablate=vo" in capsys.readouterr().out
    assert (folder / "probes.json").read_bytes() == before
    probe.main([str(folder), "ablate=vo", "--into", str(tmp_path / "kept")])
    assert {p.suffix for p in (tmp_path / "kept").iterdir()} == {".json", ".md", ".svg"}
    assert all(p.stem == folder.name for p in (tmp_path / "kept").iterdir())
    kept = {p: p.read_bytes() for p in (tmp_path / "kept").iterdir()}
    for path in [path for path in kept if path.suffix != ".json"]:
        path.unlink()
    probe.main([str(tmp_path / "kept" / f"{folder.name}.json")])
    assert {p: p.read_bytes() for p in (tmp_path / "kept").iterdir()} == kept


def test_the_problems_are_those_of_the_runs_end(tiny, tmp_path, monkeypatch):
    run([*tiny, "position=rope", "eval.problems_at_end=20"])
    asked, draw = [], data.evaluation_problems
    monkeypatch.setattr(data, "evaluation_problems", lambda task, n: asked.append(n) or draw(task, n))
    probe.main([str(only_folder(tmp_path / "runs")), "ablate=qk"])
    assert asked == [20]


def test_a_run_that_did_not_end_is_said_not_to_have(tiny, tmp_path, capsys):
    """With the step of the weights that are there, whatever run.json last said."""
    last = run([*tiny, "position=rope"])["progress"]["steps"]
    folder = only_folder(tmp_path / "runs")
    content = json.loads((folder / "run.json").read_text())
    probe.main([str(folder), "shift=1"])
    assert capsys.readouterr().err == ""
    content["status"], content["progress"]["steps"] = "interrupted", 1234
    (folder / "run.json").write_bytes(files.as_json(files.sealed(content)))
    probe.main([str(folder)])
    assert capsys.readouterr().err == f"this run is interrupted: its last weights are of step {last}\n"
    assert (folder / "probes.md").read_text().splitlines()[0].endswith(f"interrupted, weights of step {last}")


def test_a_run_of_other_code_is_said_to_be(tiny, tmp_path, capsys, caplog, monkeypatch):
    run([*tiny, "position=rope"])
    folder = only_folder(tmp_path / "runs")
    probe.main([str(folder), "shift=1"])
    assert "other code" not in caplog.text
    monkeypatch.setattr(provenance, "code", lambda cfg: {"numerics": 99, "plugin": {}})
    probe.main([str(folder), "shift=1"])
    assert "run by other code" in caplog.text
    assert "(now 99)" in caplog.text


def test_what_goes_wrong_in_a_scheme_is_not_taken_for_positions_that_end(tiny, tmp_path, monkeypatch):
    run([*tiny, "position=rope"])
    monkeypatch.setattr(probe, "_frequencies", lambda *_: (_ for _ in ()).throw(ValueError("a slip")))
    with pytest.raises(ValueError, match="a slip"):
        probe.main([str(only_folder(tmp_path / "runs")), "ablate=qk"])


def test_a_report_is_only_plotted_again(tmp_path, capsys):
    with pytest.raises(SystemExit):
        probe.main([str(tmp_path / "x.json"), "shift=5"])
    assert "it takes no PROBE and no --into" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"outcomes": [{"prob": 3}]}', '{"outcomes": []}', pytest.param("[" * 10**5, id="deep"), NOTHING],
)
def test_what_is_no_report_is_one_clear_message(tmp_path, content):
    (tmp_path / "x.json").write_text(content)
    for path in ("x.json", "y.json"):
        with pytest.raises(SystemExit, match=f"{path}: holds no probes"):
            probe.main([str(tmp_path / path)])
    assert (tmp_path / "x.json").read_text() == content


def test_what_a_report_says_is_shown_and_does_nothing(tmp_path):
    """A report from elsewhere, with mathematics, Markdown and what a terminal acts upon in its texts."""
    evil = "$\\frac{$ a | b <b>\n# c\x1b[2J\u202e"
    about = dict.fromkeys(("task", "position", "scale", "status"), evil) | {"seed": 0, "steps": 3}
    origins = {"run": {"hardware": evil}, "probe": {"hardware": evil}}
    outcomes = [{"probe": probe, "loss": 1.0, "accuracy": 0.5} for probe in ("", evil)]
    (tmp_path / "x.json").write_text(json.dumps(about | origins | {"outcomes": outcomes}))
    probe.main([str(tmp_path / "x.json")])
    page = (tmp_path / "x.md").read_text()
    assert r"a \| b &lt;b&gt;" in page
    assert page.count("\n#") == 0
    assert not {"\x1b", "\u202e"} & set(page)
    assert (tmp_path / "x.svg").read_text().rstrip().endswith("</svg>")


def test_reports_are_shown_with_wavelengths(tmp_path):
    """And the record itself stays as it was written."""
    outcomes = [{"probe": "", "loss": 1.0, "accuracy": 0.5, "cannot": "", "wavelengths": None}]
    outcomes += [{"probe": "ablate=vo:0-1", "loss": 2.0, "accuracy": 0.1, "cannot": "", "wavelengths": [6.28, 11.2]}]
    old = json.dumps(json.loads(NOTHING) | {"outcomes": outcomes}, indent=1) + "\n"
    (tmp_path / "x.json").write_text(old)
    probe.main([str(tmp_path / "x.json")])
    assert "| ablate=vo:0-1 (wavelength 6.28 to 11.2) |" in (tmp_path / "x.md").read_text()
    assert (tmp_path / "x.json").read_text() == old


def test_several_reports_are_compared_by_what_each_probe_costs(tmp_path):
    """Run by run, and without what a run could not take."""
    about = json.loads(NOTHING)
    for seed, position in enumerate(["roper", "rope", "roper"]):
        outcomes = [{"probe": "", "loss": 1.0, "accuracy": 0.9}]
        outcomes += [{"probe": "window=4", "loss": 3.0 + seed, "accuracy": 0.1}]
        outcomes += [{"probe": "ablate=v", "loss": 2.5, "accuracy": 0.1}] * (position == "roper")
        outcomes += [{"probe": "shift=9", "cannot": "too long"}]
        told = about | {"position": position, "seed": seed, "outcomes": outcomes}
        (tmp_path / f"{seed}.json").write_text(json.dumps(told))
    paths = sorted(tmp_path.glob("*.json"))
    found = probe_pages.costs([probes.read(path) for path in paths])
    assert found == {
        "rope": [{"window=4": 3.0}],
        "roper": [{"window=4": 2.0, "ablate=v": 1.5}, {"window=4": 4.0, "ablate=v": 1.5}],
    }
    probe.main([str(paths[0])])
    assert not (tmp_path / "overlay.svg").exists()  # one run has its own figure
    probe.main([*map(str, paths)])
    drawn = (tmp_path / "overlay.svg").read_text()
    assert all(label in drawn for label in ("RoPER (n = 2)", "RoPE (n = 1)", "ablate=v"))
    assert "shift=9" not in drawn


def test_the_axis_labels_of_a_probed_run_do_not_run_into_each_other():
    label = "ablate=qk:14-15 (wavelength 19,869 to 35,333)"
    outcomes = [probes.outcome({"probe": p, "loss": 0.3, "accuracy": 0.8}) for p in ("", label)]
    with mpl.rc_context(STYLE):
        plot = probe_pages.figure(outcomes, "a run")
        plot.draw_without_rendering()
    left, right = (ax.xaxis.label.get_window_extent() for ax in plot.axes)
    assert left.x1 < right.x0
    assert right.x1 < plot.bbox.x1


@pytest.mark.parametrize("name", ["run.json", "checkpoint", "x.json"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tiny, tmp_path, name):
    run(tiny)
    folder = only_folder(tmp_path / "runs")
    for path in checkpoint.checkpoints(folder) if name == "checkpoint" else [folder / name]:
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    for main in (probe.main, sample.main):
        with pytest.raises(SystemExit) as ended:
            main([str(folder / name if name == "x.json" else folder)])
        assert "\n" not in ended.value.code


@pytest.mark.parametrize("random", [False, True])
def test_positions_that_end_are_said_to_end(tiny, tmp_path, capsys, random):
    """Whether they are the model's own or behind random positions; other probes are evaluated all the same."""
    position = ["position=learned"]
    if random:
        inner = "+position.scheme={_target_:rope_lab.model.positions.Learned,_partial_:true}"
        position = ["position=randomized_rope", "~position.scheme", inner, "position.longest=164"]
    run([*tiny, *position])
    probe.main([str(only_folder(tmp_path / "runs")), "shift=101", "window=8"])
    *_, shift, window = capsys.readouterr().out.strip().splitlines()
    end, last = (265, 164) if random else (165, 64)
    assert f"{end} positions are more than the {last}" in shift
    assert "points" in window


@pytest.mark.parametrize("what", [["ablate=vo"], ["nonsense"], ["window=4", "ablate=qkvo:0"]])
def test_a_wrong_probe_ends_before_anything_is_evaluated(tiny, tmp_path, what):
    run([*tiny, "position=rope"])
    with pytest.raises(SystemExit) as ended:
        probe.main([str(only_folder(tmp_path / "runs")), *what])
    assert what[-1] in str(ended.value)
    assert not (only_folder(tmp_path / "runs") / "probes.json").exists()
