"""Where a stage's files for verl are."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Folder:
    """Where a stage's files for verl are."""

    path: Path

    @property
    def train(self) -> Path:
        """What is asked, in the order of the steps."""
        return self.path / "train.parquet"

    @property
    def validation(self) -> Path:
        """On what checkpoints are measured."""
        return self.path / "validation.parquet"

    @property
    def agent(self) -> Path:
        """Which agent loop verl uses."""
        return self.path / "agent.yaml"

    @property
    def saved(self) -> Path:
        """verl's own checkpoints."""
        return self.path / "verl"

    @property
    def log(self) -> Path:
        """What verl says."""
        return self.path / "verl.log"

    @property
    def stop(self) -> Path:
        """A file that asks the trainer to save and end."""
        return self.path / "stop"

    @property
    def stopped(self) -> Path:
        """Why the trainer ended by itself."""
        return self.path / "stopped.json"
