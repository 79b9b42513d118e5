"""`rope-lab bench`, at tiny sizes on a CPU."""

import pytest
import torch
from builders import table_rows
from conftest import script

from rope_lab import bench

NanoGPT = script("peers").NanoGPT
TINY = [
    "model.d_model=16",
    "model.n_layers=1",
    "model.n_heads=2",
    "train.batch_size=2",
    "device=cpu",
]


@pytest.mark.slow
def test_models_are_compared_with_the_first(capsys):
    with pytest.raises(SystemExit) as end:
        bench.main(["rope", "nanogpt", *TINY, "--precision", "float32", "--repeats", "2"])
    assert end.value.code == 0
    rope, nanogpt = ([*row.values()] for row in table_rows(capsys.readouterr().out))
    assert rope[:2] + rope[3:4] == ["rope", "float32", "1 (1 to 1)"]
    assert nanogpt[0] == "nanogpt"
    assert float(nanogpt[2].split()[0]) > 0


@pytest.mark.slow
def test_gpu_check_shows_what_works_and_how_fast(capsys):
    with pytest.raises(SystemExit) as end:
        bench.main(["--gpu", "rope", "t5_bias", *TINY, "--repeats", "1"])
    shown = capsys.readouterr().out
    assert end.value.code == 0
    assert shown.count("ok ") == 8
    assert "linear: T5Bias needs attention scores" in shown
    assert [[*row.values()][:2] for row in table_rows(shown)] == [
        [s, p] for p in bench.ALLOWED for s in ("rope", "t5_bias")
    ]


@pytest.mark.torture
def test_gpu_check_names_what_fails(monkeypatch, capsys):
    update = bench.update

    def wrong(trainer, step):
        if trainer.cfg.names.position == "t5_bias":
            raise RuntimeError("Expected all tensors to be on the same device\nand more")
        loss, *rest = update(trainer, step)
        return (loss * (1 + (trainer.cfg.train.precision == "bfloat16")), *rest)

    monkeypatch.setattr(bench, "update", wrong)
    assert not bench.check_gpu(["rope", "t5_bias"], "device=cpu")
    shown = capsys.readouterr().out
    error = "RuntimeError: Expected all tensors to be on the same device\n"
    assert f"WRONG t5_bias softmax float32 {error}" in shown
    assert "WRONG rope linear bfloat16 differs from the CPU's numbers by 1e+00\n" in shown


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_without_a_gpu_the_check_is_one_line(capsys):
    with pytest.raises(SystemExit, match=r"\Adevice=cuda: .*device=cpu.*\Z"):
        bench.main(["--gpu"])


@pytest.mark.parametrize("word", ["position=rope", "train.precision=float32", "train.compile=true"])
def test_what_an_argument_says_is_no_setting(word, capsys):
    with pytest.raises(SystemExit):
        bench.main(["rope", word])
    assert f"{word}: write MODEL, --precision or --compile" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [(["task=grid"], "does not read what the task gives, pos"), (["--repeats", "0"], "at least 1")],
)
def test_what_bench_cannot_time_is_one_line(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        bench.main(["nanogpt", "--precision", "float32", "--repeats", "1", *words])
    assert said in f"{ended.value}{capsys.readouterr().err}"


def test_nanogpt_is_causal_and_has_the_parameters_of_its_readme():
    """GPT-2's size: 124.3M parameters, without biases and with tied embeddings."""
    with torch.device("meta"):
        model = NanoGPT(50304, 768, 12, 12, 1024)
    assert (
        sum(p.numel() for p in model.parameters())
        == 50304 * 768 + 1024 * 768 + 12 * (12 * 768**2 + 2 * 768) + 768
    )
    torch.manual_seed(0)
    model, tokens_BT = NanoGPT(9, 16, 2, 2, 8), torch.arange(8).unsqueeze(0)
    other_BT = torch.cat([tokens_BT[:, :5], torch.zeros(1, 3, dtype=torch.int64)], dim=1)
    torch.testing.assert_close(model(tokens_BT)[:, :5], model(other_BT)[:, :5])
    assert not torch.equal(model(tokens_BT)[:, 5:], model(other_BT)[:, 5:])
