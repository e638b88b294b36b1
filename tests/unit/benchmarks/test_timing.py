import subprocess
import sys

from harness.timing import Timing, cpu_seconds, interleaved

BURN = "import time\nwhile time.process_time() < 0.3: pass"


def test_contenders_take_turns_and_nobody_is_always_first():
    order: list[tuple[str, int]] = []

    def contender(name):
        return lambda repeat: order.append((name, repeat)) or 1.0

    timings = interleaved({"a": contender("a"), "b": contender("b")}, repeats=2, warm_up=1)
    # the warm-up is repeat -1; it runs and is not kept
    assert order == [("b", -1), ("a", -1), ("a", 0), ("b", 0), ("b", 1), ("a", 1)]
    assert {name: len(each) for name, each in timings.items()} == {"a": 2, "b": 2}


def test_seconds_are_for_a_unit_of_work():
    timing = Timing(wall=6.0, cpu=3.0, work=2.0)
    assert (timing.wall_each, timing.cpu_each) == (3.0, 1.5)


def test_children_that_have_ended_count():
    before = cpu_seconds()
    subprocess.run([sys.executable, "-c", BURN], check=True)
    assert cpu_seconds() - before >= 0.3


def test_children_that_still_run_count():
    before = cpu_seconds()
    wait = BURN + "\nprint('burnt', flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", wait], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == b"burnt\n"
        during = cpu_seconds()
        child.communicate(b"\n")
    assert during - before >= 0.29  # the system tells of others in hundredths of a second
