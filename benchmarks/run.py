"""This product beside what a user would use instead: `make bench`, `make bench ONLY=step`.

Rows are printed as they come. They are kept at once in benchmarks/results.json and in
docs/results/performance.md. A row that was not measured this time stays as it was.
"""

import argparse
import importlib
import os
import sys
import tempfile
import time
from pathlib import Path

from harness.machine import Watch, machine
from harness.page import update_page
from harness.results import merged, on, read_rows, write_rows
from rows import NAMES, ROWS, Setting, chosen

from crt.processes import physical_cores

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "results.json", HERE.parent / "docs" / "results" / "performance.md"


def main() -> int:
    """Runs what was asked for; 1 if a benchmark failed, 2 if there is none of that name."""
    args = arguments()
    wanted = chosen(args.only)
    if not wanted:
        print(f"There is no row {' '.join(args.only)}. There are: {', '.join(NAMES)}.")
        return 2
    if not args.page.is_file():
        print(
            f"There is no page {args.page} to write the table into: --page names one with a table."
        )
        return 2
    # Before torch is there. Programs that use all cores by themselves do so; the rows say how.
    os.environ["OMP_NUM_THREADS"] = "1"
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for module, names in ROWS.items():
            setting = Setting(
                wanted & frozenset(names), args.repeats, args.cores, Path(folder), args.small
            )
            if setting.wanted:
                failed += not measure(module, setting, args.results, args.page)
    return 1 if failed else 0


def measure(module: str, setting: Setting, results: Path, page: Path) -> bool:
    """Measures a benchmark's rows and keeps each; False if it failed, which ends it alone."""
    watch, hardware = Watch(), machine(setting.cores)
    rows = iter(importlib.import_module(f"rows.{module}").rows(setting))
    while True:
        try:
            row = next(rows)
        except StopIteration:
            print(f"  {module}: {time.perf_counter() - watch.begun:.0f} s", flush=True)
            return True
        except Exception as error:  # the others are still worth measuring
            print(f"{module} failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            return False
        row = on(row, watch.others(), hardware)
        print(row.line(), flush=True)
        rows_now = merged(read_rows(results), row, NAMES)
        write_rows(results, rows_now)
        update_page(page, rows_now)


def arguments() -> argparse.Namespace:
    """Which rows, how often, and where they are written."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("only", nargs="*", help="rows, or the beginnings of their names (all)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--cores", type=int, default=physical_cores(), help="of every contender (all)"
    )
    parser.add_argument("--small", action="store_true", help="as little as possible, to try it")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
