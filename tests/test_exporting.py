"""`rope-lab export`: files that import no rope_lab, and the parity tests beside them."""

import ast
import importlib
import os
import sys

import pytest
import torch

from rope_lab.exporting import command

CASES = [(name, target) for name in command.supported() for target in command.TARGETS]
FAST = [(name, "torch") for name in command.supported()]
PARAMETERS = [
    case if case in FAST else pytest.param(case, marks=pytest.mark.slow) for case in CASES
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder whose modules can be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    before = {*sys.modules}
    yield tmp_path
    for name in {*sys.modules} - before:
        if getattr(sys.modules[name], "__file__", None) and name.endswith(command.TARGETS):
            del sys.modules[name]


def failing(module: str) -> list[str]:
    """The names of the tests of a parity test that fail."""
    if module.endswith("transformers"):
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        pytest.importorskip("transformers")
    tests = importlib.import_module(f"test_{module}")
    failed = []
    for name, test in vars(tests).items():
        if not name.startswith("test_"):
            continue
        try:
            test()
        except AssertionError:
            failed.append(name)
    return failed


@pytest.mark.parametrize("case", PARAMETERS, ids="-".join)
def test_an_exported_file_passes_its_parity_test(folder, case):
    paths = command.write(*case, folder)
    assert "Shape letters" in ast.get_docstring(ast.parse(paths[0].read_text()))
    for path in paths:
        imported = [n for n in ast.walk(ast.parse(path.read_text())) if is_import(n)]
        assert imported
        assert not [n for n in imported if "rope_lab" in ast.unparse(n)]
    assert failing("_".join(case)) == []


def is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


BROKEN = {  # a scheme, a change of its file, and the tests that notice it
    "values": ("roper", "rotate(o_BTHK, -pos_BT", "rotate(o_BTHK, 0 * pos_BT"),
    "gates": ("fox", "-log_f_BSH.cumsum(1)", "-0 * log_f_BSH.cumsum(1)"),
    "phases": ("pope", "angle_BT1K - self.delta", "angle_BT1K + self.delta"),
    "first": ("partial_key_offset", "sees_both_BTS.any(1)", "sees_both_BTS.any(1) | True"),
    "cache": ("rope", "torch.arange(begin, end", "torch.arange(0, end - begin"),
}
NOTICED = {
    "first": "test_left_padding_changes_nothing",
    "cache": "test_decoding_with_a_cache_is_as_without",
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_parity_test_finds_a_broken_scheme(folder, what):
    name, right, wrong = BROKEN[what]
    path, _ = command.write(name, "torch", folder)
    source = path.read_text("utf-8")
    assert right in source
    path.write_text(source.replace(right, wrong), "utf-8")
    assert NOTICED.get(what, "test_outputs_are_those_of_rope_lab") in failing(f"{name}_torch")


@pytest.mark.slow
def test_a_saved_llama_brings_its_code_along(folder):
    """AutoModelForCausalLM loads it without the file, and refuses it without its code."""
    transformers = pytest.importorskip("transformers")
    path, _ = command.write(command.supported()[0], "transformers", folder)
    module = importlib.import_module(path.stem)
    (config,) = (
        c
        for name, c in vars(module).items()
        if name.endswith("Config") and c.__module__ == path.stem and "model_type" in vars(c)
    )
    (model,) = (c for c in vars(module).values() if getattr(c, "config_class", 0) is config)
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 9}
    model(config(**sizes, intermediate_size=8)).save_pretrained(folder / "saved")
    assert (folder / "saved" / path.name).exists()
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "saved", trust_remote_code=True
    )
    assert type(loaded).__name__ == model.__name__


def test_what_cannot_be_exported_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="t5_bias: cannot be exported; there are fox"):
        command.main(["t5_bias", "--to", "torch", "--out", str(tmp_path)])


def test_a_layer_refuses_what_it_would_compute_wrongly(folder):
    command.write("rope", "torch", folder)
    layer = importlib.import_module("rope_torch").RoPEAttention(d_model=16, n_heads=2)
    x_BTD, cache = torch.zeros(1, 2, 16), {}
    layer(x_BTD, cache)
    with pytest.raises(ValueError, match="must have all 3 so far"):
        layer(x_BTD[:, :1], cache, torch.ones(1, 1, dtype=torch.bool))
    odd = importlib.import_module("rope_torch").RoPEAttention(d_model=6, n_heads=2)
    with pytest.raises(ValueError, match="must be an even number"):
        odd(torch.zeros(1, 2, 6))


def test_a_file_of_others_is_not_overwritten(tmp_path):
    (tmp_path / "test_fox_torch.py").write_text("mine")
    with pytest.raises(SystemExit, match=r"test_fox_torch\.py: was not written by this command"):
        command.main(["fox", "--to", "torch", "--out", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["test_fox_torch.py"]


def test_an_edited_export_stays(tmp_path):
    words = ["rope", "--to", "torch", "--out", str(tmp_path / "new")]
    command.main(words)
    command.main(words)  # the same content
    file = tmp_path / "new" / "rope_torch.py"
    file.write_text(f"{file.read_text()}# mine\n")
    with pytest.raises(SystemExit, match="was edited"):
        command.main(words)
    assert file.read_text().endswith("# mine\n")
