"""Probes of a trained model: ablations, shifts, attention windows, and error messages."""

import copy
import json
import shutil

import pytest
import torch
from conftest import one_line, only_folder, tree
from sums import DIMS, make_model
from trained import run

from rope_lab import probe, sample
from rope_lab.model import probes
from rope_lab.model.attention import unpacked
from rope_lab.model.schemes import Rotary
from rope_lab.text import ConfigError
from rope_lab.train import checkpoint

TOKENS = torch.randint(11, (2, 20), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("name", "what", "same_as"),
    [
        ("rope", "ablate=qk", {}),
        ("roper", "ablate=vo", {"q": 1, "k": 1}),
        ("roper", "ablate=o", {"q": 1, "k": 1, "v": 1}),
        ("roper_double_rotation", "ablate=qko", {"v": 2}),
        ("p_rope", "ablate=qk", {}),
        ("roper", "ablate=vo:2-3", {"q": 1, "k": 1, "v": 1, "o": -1, "value_fraction": 0.5}),
        (
            "roper_fast",
            "ablate=vo:1",
            {"q": 1, "k": 1, "v": 1, "o": -1, "value_fraction": 0.25, "value_base": 100.0},
        ),
        ("roper_fast", "ablate=qk", {"v": 1, "o": -1, "value_fraction": 0.5, "value_base": 100.0}),
    ],
)
def test_what_is_ablated_is_not_rotated(name, what, same_as):
    expected, made = make_model(Rotary(DIMS, **same_as))(TOKENS), make_model(name)
    assert (made(TOKENS) - expected).abs().max() > 1e-3
    made.position = probes.changed(what, made)
    torch.testing.assert_close(made(TOKENS), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "whole", "pairs"),
    [
        ("rope", ["qk"], ["qk:0", "qk:1", "qk:2", "qk:3"]),
        ("randomized_rope", ["qk"], ["qk:0", "qk:1", "qk:2", "qk:3"]),
        ("roper_fast", ["qk", "v", "o", "vo"], ["qk:0", "qk:1", "qk:2", "qk:3", "vo:0", "vo:1"]),
        ("pope", ["qk"], [f"qk:{feature}" for feature in range(8)]),
        ("alibi", [], []),
    ],
)
def test_all_probes_ablate_each_rotated_part_and_pair(name, whole, pairs):
    made = make_model(name)
    found = probes.all_probes(made, 64)
    assert [p.removeprefix("ablate=") for p in found if p.startswith("ablate")] == [*whole, *pairs]
    assert found[:9] == [
        *(f"shift={10**n}" for n in range(4)),
        *(f"window={2**n}" for n in range(1, 6)),
    ]
    for each in found:
        probes.changed(each, made)
    linear = [
        p
        for p in probes.all_probes(make_model("rope", attention="linear"), 64)
        if p.startswith("window")
    ]
    assert not linear


def test_a_probe_of_pairs_has_the_wavelengths_that_are_ablated():
    """2π · base^(2i/8) positions for pair i of four."""
    rope, fast = make_model("rope"), make_model("roper_fast")

    def stopped(what, model):
        return probes.ablate(what, copy.deepcopy(model.position))

    assert stopped("ablate=qk:0", rope) == pytest.approx((6.283185, 6.283185))
    assert stopped("ablate=qk:1-3", rope) == pytest.approx((62.83185, 6283.185))
    assert stopped("ablate=vo:0-1", fast) == pytest.approx((6.283185, 6.283185 * 100**0.25))


def test_random_positions_stay_as_they_were_drawn():
    """A shift moves the sampled positions; an ablation applies to the inner scheme."""
    made, bare = make_model("randomized_rope"), make_model("rope")
    made.position.draw(3, 32)
    drawn = made.position.drawn[:20]
    for what, expected in (
        ("shift=7", bare(TOKENS, drawn + 7)),
        ("ablate=qk", make_model("none")(TOKENS)),
    ):
        model = make_model("randomized_rope")
        model.position = probes.changed(what, model)
        model.position.draw(3, 32)
        torch.testing.assert_close(model(TOKENS), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        "sinusoidal",
        "learned",
        "roper",
        "xpos",
        "pope",
        "fire",
        "rnope_swa",
        "path",
        "gemma4",
        "rope_pp",
        "partial_key_offset_roper",
        "kv_shift",
    ],
)
def test_a_shift_moves_every_position_and_no_key(name):
    expected = make_model(name)(TOKENS[:, :10], torch.arange(10) + 7)
    made = make_model(name)
    made.position = probes.changed("shift=7", made)
    torch.testing.assert_close(made(TOKENS[:, :10]), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["none", "rope", "alibi", "grape_a", "cope"])
def test_a_window_hides_what_is_before_it_and_nothing_else(name):
    made = make_model(name, layers=1)
    embedded = []
    made.embedding.register_forward_hook(
        lambda m, i, output: embedded.append(output) or output.retain_grad()
    )
    made.position = probes.changed("window=5", made)
    made(TOKENS)[0, 12].square().sum().backward()
    gradient = embedded[0].grad[0].abs().sum(-1)
    assert (gradient[8:13] > 1e-9).all()
    assert (gradient[:8] == 0).all()
    assert (gradient[13:] == 0).all()


@pytest.mark.parametrize(
    ("name", "what", "message"),
    [
        ("alibi", "ablate=qk", "ablate=qk: rotated are only nothing"),
        ("pope", "ablate=v", "ablate=v: rotated are only q, k"),
        ("rope", "ablate=qk:4", "the pairs of a head that are rotated in qk are 0-3"),
        ("rope", "ablate=qk:2-1", "the pairs of a head that are rotated in qk are 0-3"),
        ("rope", "shift=1000000000", "with N below 10⁹"),
        ("rope", "noise", "must be shift=N"),
    ],
)
def test_a_probe_without_its_part_is_one_clear_message(name, what, message):
    with pytest.raises(ConfigError, match=message):
        probes.changed(what, make_model(name))


@pytest.mark.parametrize(
    "name",
    [
        "none",
        "roper",
        "pope",
        "alibi",
        "rnope_swa",
        "ssmax",
        "fox",
        "cope",
        "path",
        "gemma4",
        "inkling",
        "wall",
        "kv_shift",
    ],
)
def test_recorded_attention_gives_the_outputs_of_each_layer(name, monkeypatch):
    """Weights are causal, and each row sums to 1."""
    made, weights_of, seen = make_model(name), probes.attention_weights, []

    def compared(scheme, heads, at, bias):
        found, expected = (
            weights_of(scheme, heads, at, bias),
            scheme.attention(heads, at, bias, None),
        )
        outputs = torch.einsum("bhts,bshk->bthk", found.double(), unpacked(heads)[2].double())
        torch.testing.assert_close(outputs, expected.double(), rtol=0, atol=1e-5)
        seen.append(found)
        return found

    monkeypatch.setattr(probes, "attention_weights", compared)
    made.position.draw(3, 32)
    made.position = probes.Watched(made.position)
    made(TOKENS)
    assert [found.shape for found in seen] == [(2, 3, 20, 20)] * 2
    for found in seen:
        torch.testing.assert_close(found, found.tril())
        torch.testing.assert_close(found.sum(-1), torch.ones(2, 3, 20))


def test_recorded_attention_does_not_rotate_remapped_values():
    """Weights are causal, and each row sums to 1."""
    turned = "position.v=1", "position.o=-1", "position.original=8"
    made = make_model("rope_remapped", *turned)
    made.position = probes.Watched(made.position)
    outputs = made(TOKENS)
    assert len(made.position.weights) == 2
    for found in made.position.weights:
        torch.testing.assert_close(found, found.tril())
        torch.testing.assert_close(found.sum(-1), torch.ones(2, 3, 20))
    torch.testing.assert_close(outputs, make_model("rope_remapped", *turned)(TOKENS))


def test_computed_positions_rotate_queries_and_keys_apart():
    made, found = make_model("repo"), [make_model("repo")(TOKENS)]
    original = made.position
    for part in ("q", "k", "qk"):
        made.position = original
        made.position = probes.changed(f"ablate={part}", made)
        found.append(made(TOKENS))
    for number, logits in enumerate(found):
        for other in found[:number]:
            assert (logits - other).abs().max() > 1e-3


@pytest.mark.slow
def test_the_command_line(tiny, tmp_path, capsys):
    """All probes are written beside the run, selected ones only printed; the .json restores .md and
    .svg.
    """
    content = run([*tiny, "position=roper", "eval.problems_at_end=20"])
    folder = only_folder(tmp_path / "runs")
    probe.main([str(folder)])
    shown = capsys.readouterr().out
    found = json.loads((folder / "probes.json").read_text())
    whole, *others = found["outcomes"]
    assert found["run"] == found["probe"]
    assert found["run"]["numerics"] == content["provenance"]["numerics"]
    assert whole["loss"] == pytest.approx(content["metrics"]["eval/loss"], rel=1e-6)
    assert whole["accuracy"] == pytest.approx(content["metrics"]["eval/accuracy"])
    assert [o["probe"] for o in others] == probes.all_probes(make_model("roper"), 64)
    assert all(o["probe"] in shown for o in others)
    (of_heads,), (maps,) = found["attention"]["by_distance"], found["attention"]["maps"]
    assert (len(of_heads), len(of_heads[0])) == (2, 64)
    assert [sum(row) for head in maps for row in head] == pytest.approx([1.0] * 64, abs=0.01)
    before = (folder / "probes.json").read_bytes()
    probe.main([str(folder), "--allow", "tasks", "ablate=vo"])
    assert "ablate=vo" in capsys.readouterr().out
    assert (folder / "probes.json").read_bytes() == before
    with pytest.raises(SystemExit, match="nonsense: must be shift=N"):
        probe.main([str(folder), "shift=1", "nonsense"])
    (tmp_path / "kept").mkdir()
    for kind in ("json", "md", "svg"):
        shutil.copy(folder / f"probes.{kind}", tmp_path / "kept" / f"{folder.name}.{kind}")
    kept = tree(tmp_path / "kept")
    for kind in ("md", "svg"):
        (tmp_path / "kept" / f"{folder.name}.{kind}").unlink()
    probe.main([str(tmp_path / "kept" / f"{folder.name}.json")])
    assert tree(tmp_path / "kept") == kept
    found.pop("run")
    (tmp_path / "kept" / "lacks.json").write_text(json.dumps(found))
    with pytest.raises(SystemExit, match="holds no probes"):
        probe.main([str(tmp_path / "kept" / "lacks.json")])
    (tmp_path / "kept" / f"{folder.name}.md").write_text("mine")
    with pytest.raises(SystemExit, match="was not written by this command, and stays"):
        probe.main([str(tmp_path / "kept" / f"{folder.name}.json")])


def test_weights_that_are_not_finite_are_one_line(folder):
    """Instead of `0 of 8 right` or a table of nan."""
    saved = checkpoint.load(folder)
    saved["model"]["unembedding.bias"][0] = torch.nan
    checkpoint.save(folder, saved["step"], saved)
    for main in (sample.main, probe.main):
        with pytest.raises(SystemExit, match=one_line("the norm of the weights is nan")):
            main([str(folder)])


def test_positions_that_end_are_said_to_end(tiny, tmp_path, capsys):
    """For a learned table behind random positions; other probes are still evaluated."""
    inner = "+position.scheme={_target_:rope_lab.model.schemes.Learned}"
    run([*tiny, "position=randomized_rope", "~position.scheme", inner, "position.longest=164"])
    probe.main([str(only_folder(tmp_path / "runs")), "shift=101", "window=8"])
    *_, shift, window = capsys.readouterr().out.strip().splitlines()
    assert "265 positions are more than the 164" in shift
    assert "%" in window
