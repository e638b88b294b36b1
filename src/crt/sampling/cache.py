"""A layer of cache with room for all of its rows from the start."""

from typing import TypeVar

from torch import Tensor
from transformers.cache_utils import CacheLayerMixin

Place = TypeVar("Place", int, Tensor)


class RoomyLayer(CacheLayerMixin):
    """Keys and values of one layer; who fills its rows, and how far, says the class below."""

    def __init__(self, rows: int, room: int) -> None:
        super().__init__()
        self.rows, self.room = rows, room

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Takes shape, type and device from the first keys and values seen."""
        _, heads, _, size = key_states.shape
        self.keys = key_states.new_empty(self.rows, heads, self.room, size)
        self.values = value_states.new_empty(self.rows, heads, self.room, value_states.shape[-1])
        self.is_initialized = True

    def stored(self) -> tuple[Tensor, Tensor]:
        """Keys and values, once there are any."""
        assert self.keys is not None and self.values is not None
        return self.keys, self.values

    def copy_rows(self, source: Place, target: Place, length: int) -> None:
        """Puts rows, as far as they are filled, in the place of others."""
        for kept in self.stored():
            kept[target, :, :length] = kept[source, :, :length]

    def get_max_cache_shape(self) -> int:
        """Positions there is room for."""
        return self.room
