"""Several processes as one run: who writes, who waits."""

import os
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Ranks:
    """This process among those that `accelerate launch` or `torchrun` started."""

    rank: int = 0
    count: int = 1

    @classmethod
    def found(cls) -> "Ranks":
        """From the launcher's environment; one process without it."""
        return cls(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))

    @property
    def writes(self) -> bool:
        """Only one process writes a run."""
        return self.rank == 0

    def wait(self) -> None:
        """Until every process has come here."""
        if self.count > 1:
            from accelerate import PartialState

            PartialState(cpu=not _has_gpu()).wait_for_everyone()

    def gathered(self, rows: list[Any]) -> list[Any]:
        """The rows of every process, one process after the other, for all of them."""
        if self.count == 1:
            return rows
        from accelerate.utils import gather_object

        self.wait()  # which also makes the processes' group, if nothing has yet
        return gather_object(rows)


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
