"""The paper's printed tables, recomputed: `aes` from the printed averages gives the printed scores.

Rows are (method, mean accuracy, mean length, AES1, AES2); the first row of a table is its base.
"""

import numpy as np
import pytest

from crt.algorithm.metrics import AES1, AES2, aes

TABLE_1 = [  # in-domain, DeepSeek-1.5B
    ("DeepSeek-1.5B", 84.81, 3428.0, 0.0, 0.0),
    ("ThinkPrune-500", 82.08, 2725.0, 0.0441, -0.1168),
    ("ThinkPrune-1k", 83.62, 2667.0, 0.1515, 0.0811),
    ("L1", 86.02, 3581.5, -0.0022, -0.0022),
    ("O1-Pruner-1.0", 83.06, 2723.0, 0.1022, -0.0013),
    ("O1-Pruner-4.0", 84.97, 3006.5, 0.1288, 0.1288),
    ("ShorterBetter", 76.85, 1749.6, 0.0207, -0.4482),
    ("ACPO", 84.11, 2713.3, 0.1673, 0.1261),
    ("CRT", 85.35, 2499.2, 0.2901, 0.2901),
]
TABLE_2 = [  # out-domain, DeepSeek-1.5B
    ("DeepSeek-1.5B", 50.84, 9894.5, 0.0, 0.0),
    ("ThinkPrune-500", 48.72, 9123.2, -0.13, -0.33),
    ("ThinkPrune-1k", 49.46, 8908.5, -0.03, -0.17),
    ("L1", 52.98, 9902.2, 0.12, 0.12),
    ("O1-Pruner-1.0", 49.76, 9042.8, -0.01, -0.12),
    ("O1-Pruner-4.0", 51.58, 9141.0, 0.12, 0.12),
    ("ShorterBetter", 49.58, 7722.4, 0.10, -0.03),
    ("ACPO", 51.33, 8772.2, 0.14, 0.14),
    ("CRT", 52.43, 8786.4, 0.21, 0.21),
]
TABLE_3 = [  # all data sets, Qwen3-4B
    ("Qwen3-4B", 65.77, 2472.8, 0.0, 0.0),
    ("ThinkPrune-500", 64.96, 2109.8, 0.09, 0.02),
    ("ThinkPrune-1k", 64.46, 2006.9, 0.09, -0.01),
    ("O1-Pruner-4.0", 62.66, 1394.3, 0.2, -0.04),
    ("ShorterBetter", 61.22, 1343.4, 0.11, -0.23),
    ("ACPO", 63.12, 1675.6, 0.12, -0.08),
    ("CRT", 62.99, 1361.4, 0.24, 0.03),
]
ABLATION_IN_DOMAIN = [
    TABLE_1[0],
    ("CRT", 85.35, 2499.2, 0.29, 0.29),
    ("CRT (1s)", 84.52, 2549.6, 0.24, 0.22),
    ("PD", 82.28, 2461.0, 0.13, -0.02),
]
ABLATION_OUT_DOMAIN = [
    TABLE_2[0],
    ("CRT", 52.43, 8786.4, 0.21, 0.21),
    ("CRT (1s)", 52.03, 8613.0, 0.20, 0.20),
    ("PD", 50.10, 8607.4, 0.06, -0.02),
]
ABLATION_ALL = [  # the appendix's table; its rows CRT and CRT (1s) are exchanged in print
    ("DeepSeek-1.5B", 62.16, 7738.9, 0.0, 0.0),
    ("CRT", 62.86, 6591.8, 0.18, 0.18),
    ("CRT (1s)", 63.4, 6690.7, 0.20, 0.20),
    ("PD", 60.82, 6558.6, 0.04, -0.06),
]
# accuracy and length on GSM8K, MATH500, SAT, AMC23, AIME24, Olympiad
APPENDIX_ABLATION = {
    "CRT": (
        [83.23, 85.81, 93.16, 72.66, 29.17, 13.12],
        [1102, 3998, 1214, 6982, 12426, 13831],
    ),
    "CRT (1s)": (
        [84.64, 86.06, 93.16, 74.38, 28.54, 13.63],
        [1172, 3826, 1582, 6934, 12674, 13956],
    ),
    "PD": (
        [79.24, 85.31, 88.67, 71.72, 27.5, 12.5],
        [975, 3947, 803, 7337, 12540, 13750],
    ),
}

# The last printed digit of the scores; some are cut off there, not rounded.
TABLES = {
    "Table 1": (TABLE_1, 0.0001),
    "Table 2": (TABLE_2, 0.01),
    "Table 3": (TABLE_3, 0.01),
    "ablation, in-domain": (ABLATION_IN_DOMAIN, 0.01),
    "ablation, out-domain": (ABLATION_OUT_DOMAIN, 0.01),
    "ablation, appendix": (ABLATION_ALL, 0.01),
}
ROWS = [
    pytest.param(table[0], row, digit, id=f"{name}: {row[0]}")
    for name, (table, digit) in TABLES.items()
    for row in table
]


@pytest.mark.parametrize(("base", "row", "digit"), ROWS)
def test_aes_of_every_printed_row(base, row, digit):
    _, accuracy, length, *printed = row
    for weights, score in zip((AES1, AES2), printed, strict=True):
        # accuracies are rounded to ±0.005 and lengths to ±0.05, in the row and in its base
        rounding = weights.gamma * 0.01 / base[1] + 0.1 / base[2]
        computed = aes(accuracy, length, base[1], base[2], weights)
        assert computed == pytest.approx(score, abs=digit + rounding)


def averages(method: str, columns: slice) -> tuple[float, float]:
    accuracy, length = APPENDIX_ABLATION[method]
    return float(np.mean(accuracy[columns])), float(np.mean(length[columns]))


def test_the_appendix_has_crt_and_one_stage_exchanged():
    # in-domain averages of the appendix's "CRT (1s)" are Table 1's CRT, and the other way round
    in_domain = slice(0, 2)
    assert averages("CRT (1s)", in_domain) == pytest.approx((85.35, 2499.2), abs=0.25)
    assert averages("CRT", in_domain) == pytest.approx((84.52, 2549.6), abs=0.45)
    # so is it out of domain
    assert averages("CRT (1s)", slice(2, 6)) == pytest.approx((52.43, 8786.4), abs=0.25)
    assert averages("CRT", slice(2, 6)) == pytest.approx((52.03, 8613.0), abs=0.45)


def test_pd_is_not_exchanged():
    assert averages("PD", slice(0, 2)) == pytest.approx((82.28, 2461.0), abs=0.05)


def test_aes_is_taken_from_the_macro_averages():
    # not the mean of each data set's score, which would be +0.04 for PD in-domain
    accuracy, length = APPENDIX_ABLATION["PD"]
    each = aes(accuracy[:2], length[:2], [84.43, 85.19], [1869, 4987], AES2)
    assert np.mean(each) == pytest.approx(0.04, abs=0.01)
    assert aes(82.28, 2461.0, 84.81, 3428.0, AES2) == pytest.approx(-0.02, abs=0.01)
