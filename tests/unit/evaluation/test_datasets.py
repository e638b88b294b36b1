"""What data sets and models are called."""

from crt.evaluation.datasets import short_name


def test_short_names():
    assert short_name("Qwen/Qwen3-4B") == "Qwen3-4B"
    assert short_name("runs/demo/checkpoints/step-0040/") == "step-0040"
    assert short_name("../..") == "model"
