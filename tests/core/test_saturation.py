import numpy as np
import pytest

from crt.core.saturation import Saturation, smoothed


def falling(percent_per_step: float, steps: int) -> list[float]:
    return list(1000 * (1 - percent_per_step / 100) ** np.arange(steps))


def test_smoothed_starts_at_the_first_value():
    assert smoothed([10, 20], past=0.9) == [10, 11]


def test_goes_on_while_length_falls():
    # 0.5 % a step is 10 % over 20 steps
    assert not Saturation().reached(falling(0.5, 60), total_steps=200)


def test_ends_when_length_stays():
    # 0.05 % a step is 1 % over 20 steps, less than 2 %
    assert Saturation().reached(falling(0.05, 60), total_steps=200)


def test_ends_when_length_rises():
    assert Saturation().reached(list(range(1000, 1060)), total_steps=200)


def test_not_before_at_least():
    flat = [1000.0] * 60
    assert not Saturation().reached(flat[:39], total_steps=200)
    assert Saturation().reached(flat[:40], total_steps=200)


def test_at_the_latest_at_seventy_percent():
    steep = falling(3, 200)
    assert not Saturation().reached(steep[:139], total_steps=200)
    assert Saturation().reached(steep[:140], total_steps=200)


def test_noise_of_a_few_percent_does_not_end_it():
    noise = 1 + 0.03 * np.random.default_rng(0).standard_normal(60)
    assert not Saturation().reached(list(falling(0.5, 60) * noise), total_steps=200)


@pytest.mark.parametrize("wrong", [{"window": 0}, {"latest": 1.5}, {"smoothing": 1.0}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValueError):
        Saturation(**wrong)
