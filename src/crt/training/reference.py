"""A frozen policy's graded rollouts: sampled once per problem, kept on disk, shared by key."""

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from crt.algorithm.batch import TOKENS_ALONE, Batch, Measures, TruncatedAs, batch_of
from crt.data.datasets import content_hash
from crt.errors import DataError
from crt.processes import Ranks
from crt.types import Problem, Rollout, Verdict

ALONE = Ranks()

Sampler = Callable[[Sequence[Problem]], Sequence[Rollout]]

WAIT_SECONDS = 60.0  # for another process that is writing
AT_ONCE = 256  # problems whose rollouts are kept together
SCHEMA = """
create table if not exists about (name text primary key, value text not null) strict;
create table if not exists rollouts (
    problem text primary key, checksum text not null, packed blob not null
) strict;
"""


COUNTED = {"tokens", "format"}  # measures that were known of rollouts before their thinking was


def key_of(about: Mapping[str, Any]) -> str:
    """The name of a cache: another model, prompt, sampler, cap or grader is another name."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:24]


class Store:
    """One file a key; any number of processes may use it, and a kill loses nothing finished.

    What was stored first stays: two processes that sample the same problem end with the same
    rollouts. A damaged entry is forgotten and counts as not yet sampled.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        self.path = folder / f"{key_of(about)}.sqlite"
        self.damaged = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with closing(self._open()) as database, database:
                database.executescript(SCHEMA)
                rows = [(name, json.dumps(value)) for name, value in about.items()]
                database.executemany("insert or ignore into about values (?, ?)", rows)
        except (OSError, sqlite3.Error) as error:
            raise self._unusable(error) from error

    def get(self, problems: Iterable[Problem], thinking: bool = False) -> dict[str, list[Rollout]]:
        """Problem id → rollouts, of those that are there.

        Earlier versions did not count `thinking`; who needs it samples such problems again.
        """
        found: dict[str, list[Rollout]] = {}
        try:
            with closing(self._open()) as database:
                for problem in problems:
                    query = "select checksum, packed from rollouts where problem = ?"
                    row = database.execute(query, (content_of(problem),)).fetchone()
                    if row is None:
                        continue
                    whole = _sum(row[1]) == row[0]
                    rollouts = _unpacked(problem.id, row[1]) if whole else []
                    if whole and not (thinking and any(r.thinking is None for r in rollouts)):
                        found[problem.id] = rollouts
                        continue
                    self.damaged += not whole
                    self._forget(problem)
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        return found

    def put(self, problems: Iterable[Problem], rollouts: Mapping[str, Sequence[Rollout]]) -> None:
        """All of these problems at once, or none; what another process stored first stays."""
        rows: list[tuple[str, str, bytes]] = []
        for problem in problems:
            packed = _packed(rollouts[problem.id])
            rows.append((content_of(problem), _sum(packed), packed))
        try:
            with closing(self._open()) as database, database:
                database.executemany("insert or ignore into rollouts values (?, ?, ?)", rows)
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def __len__(self) -> int:
        with closing(self._open()) as database:
            return database.execute("select count(*) from rollouts").fetchone()[0]

    def _forget(self, problem: Problem) -> None:
        with closing(self._open()) as database, database:
            database.execute("delete from rollouts where problem = ?", (content_of(problem),))

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=WAIT_SECONDS)

    def _unusable(self, error: Exception) -> DataError:
        return DataError(
            f"the reference cache {self.path} cannot be used: {error}. The disk needs room "
            "and the folder must be writable; a damaged file can be removed, and its rollouts are "
            "then sampled again."
        )


class Reference:
    """The guard's reference: rollouts of the frozen policy for any problem, as a batch.

    `sampler` is asked only for problems that the store does not have yet; without a store it is
    asked every time, as Alg. 1 has it.
    """

    def __init__(
        self,
        problems: Iterable[Problem],
        sampler: Sampler,
        store: Store | None,
        truncated_as: TruncatedAs = "wrong",
        ranks: Ranks = ALONE,
        measures: Measures = TOKENS_ALONE,
    ) -> None:
        self.measures = measures
        self.problems = {problem.id: problem for problem in problems}
        self.sampler, self.store, self.ranks = sampler, store, ranks
        self.truncated_as: TruncatedAs = truncated_as
        self.sampled = 0  # rollouts, since this object was made

    def rollouts(self, problem_ids: Sequence[str]) -> dict[str, list[Rollout]]:
        """Problem id → its reference rollouts."""
        wanted = [self.problems[problem_id] for problem_id in problem_ids]
        if self.store is None:
            return self._sample(wanted)
        found = self.store.get(wanted, thinking=bool(self.measures.numbers.keys() - COUNTED))
        missing = [problem for problem in wanted if problem.id not in found]
        self.ranks.wait()  # all have looked, so all miss the same
        mine = missing[self.ranks.rank :: self.ranks.count]
        if mine:
            self.store.put(mine, self._sample(mine))
        self.ranks.wait()  # all have stored their share
        return found | self.store.get(missing)  # what another process stored first stays

    def __call__(self, problem_ids: Sequence[str]) -> Batch | None:
        """The reference's batch, without the problems on which it could not be graded."""
        found = self.rollouts(problem_ids)
        flat = [
            replace(rollout, dataset=self.problems[problem_id].source)
            for problem_id in problem_ids
            for rollout in found[problem_id]
        ]
        return batch_of(flat, self.truncated_as, self.measures)[0]

    def verdicts(self, problem_ids: Sequence[str]) -> list[Verdict]:
        """Of every reference rollout."""
        found = self.rollouts(problem_ids)
        return [rollout.verdict for problem_id in problem_ids for rollout in found[problem_id]]

    def sample_ahead(self, problems: Iterable[Problem]) -> None:
        """The rollouts that are missing, kept as they come: a kill loses the last few."""
        wanted = list(dict.fromkeys(problem.id for problem in problems))
        for first in range(0, len(wanted), AT_ONCE):
            self.rollouts(wanted[first : first + AT_ONCE])

    def _sample(self, problems: Sequence[Problem]) -> dict[str, list[Rollout]]:
        groups: dict[str, list[Rollout]] = {problem.id: [] for problem in problems}
        for rollout in self.sampler(problems):
            groups[rollout.problem_id].append(rollout)
            self.sampled += 1
        return groups


def content_of(problem: Problem) -> str:
    """A problem's identity in a cache: with another question or answer it is another problem."""
    return content_hash([problem])


def _packed(rollouts: Sequence[Rollout]) -> bytes:
    rows = [[r.text, r.length, r.stop, r.verdict, r.extracted, r.thinking] for r in rollouts]
    return zlib.compress(json.dumps(rows).encode())


def _unpacked(problem_id: str, packed: bytes) -> list[Rollout]:
    rows = json.loads(zlib.decompress(packed))  # older caches do not have the last one
    return [
        Rollout(problem_id, t, n, stop, Verdict(v), e, thinking=thinking[0] if thinking else None)
        for t, n, stop, v, e, *thinking in rows
    ]


def _sum(packed: bytes) -> str:
    return hashlib.sha256(packed).hexdigest()
