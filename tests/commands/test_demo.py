from crt.cli import main


def test_the_demo_shows_every_method(capsys):
    assert main(["demo", "--tabular", "--seed", "2"]) == 0
    shown = capsys.readouterr().out
    for name in ("base", "length only", "primal-dual", "CRT, Stage I", "CRT, both stages"):
        assert name in shown
    assert "Stage II, goal of each step" in shown
