"""What the sampler computed of every token, kept for the update.

A batch is sampled and learnt from by one and the same policy, so on its way forwards the update
would do what the sampler has done already. It is on this tape: the update looks its tokens up and
goes backwards.
"""

from typing import Any

import torch
from torch import Tensor

from crt.engines.lean import NOWHERE, Kept, Lean
from crt.engines.tree import Tree, parts_of

ROOM = 2**30  # bytes, taken as they are needed; a batch that needs more is computed again
ROOT = -1


class Tape:
    """Of the last batch that was sampled: what came of each of its nodes, layer by layer.

    A node is a beginning that rollouts have in common, as in the update's tree.
    """

    def __init__(self) -> None:
        self.layers: list[Kept] = []  # and what leaves the last one
        self.forget()

    def forget(self) -> None:
        """Nothing is on it any more; its room is kept for the next batch."""
        self.model: Any = None
        self.weights: list[Tensor] = []  # as they were
        self.child: dict[tuple[int, int], int] = {}  # of a node, by what is said after it
        self.new = slice(0, 0)
        self.rows = torch.zeros(0, dtype=torch.long)  # the node that each row is at

    def begin(self, model: Any, lean: Lean, most: int) -> None:
        """A batch of this model, of at most so many nodes; nothing may be on it."""
        self.model, self.lean = model, lean
        # Copies, to be compared: a fused optimiser changes weights behind autograd's back.
        self.weights = [weight.detach().clone() for weight in model.parameters()]
        widths, size = [layer.widths for layer in lean.layers], model.config.hidden_size
        most = min(most, ROOM // (4 * (sum(map(sum, widths)) + size)))
        if not self.layers or len(self.layers[-1].hidden) < most:
            self.layers = [Kept(*(torch.empty(most, width) for width in each)) for each in widths]
            self.layers.append(NOWHERE._replace(hidden=torch.empty(most, size)))

    def prompts(self, tree: Tree, last: Tensor) -> None:
        """Their nodes come first; rows go on from the `last`."""
        number = torch.arange(len(tree.token))
        self._add(torch.where(tree.parent == number, ROOT, tree.parent), tree.token)
        self.rows = last

    def step(self, origin: Tensor, token: Tensor) -> None:
        """Then one more of every row, which goes on from one of the rows before."""
        if self.model is not None:
            self.rows = self._add(self.rows[origin], token)

    def _add(self, parent: Tensor, token: Tensor) -> Tensor:
        """Room for new nodes; one that is there already, as of a question asked twice, stays."""
        first = self.new.stop
        self.new = slice(first, first + len(token))
        said = zip(parent.tolist(), token.tolist(), strict=True)
        return torch.tensor([self.child.setdefault(each, k) for k, each in enumerate(said, first)])

    def rooms(self) -> list[Kept] | None:
        """Of every layer, where it is kept what comes of the new nodes; None if it is full."""
        if self.model is None or self.new.stop > len(self.layers[-1].hidden):
            self.forget()
            return None
        *layers, last = self.layers
        rooms = [Kept(*(each[self.new] for each in layer)) for layer in layers]
        return [*rooms, NOWHERE._replace(hidden=last.hidden[self.new])]

    def nodes(self, model: Any, tree: Tree) -> Tensor | None:
        """Where the nodes of a tree are, if all are here and the model is as it was."""
        if model is not self.model or not all(map(torch.equal, model.parameters(), self.weights)):
            return None
        found: list[int] = []
        said = zip(tree.parent.tolist(), tree.token.tolist(), strict=True)
        for number, (parent, token) in enumerate(said):
            node = self.child.get((ROOT if parent == number else found[parent], token))
            if node is None:
                return None
            found.append(node)
        return torch.tensor(found)


class Recalled(torch.autograd.Function):
    """What leaves the last layer, from what comes to the first: looked up, but for the way back."""

    @staticmethod
    def forward(
        ctx: Any, embedded: Tensor, tape: Tape, tree: Tree, nodes: Tensor, *weights: Tensor
    ) -> Tensor:
        """(nodes, size) to the same."""
        ctx.tape, ctx.tree, ctx.nodes, ctx.weights = tape, tree, nodes, weights
        return tape.layers[-1].hidden.index_select(0, nodes)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Of what came, and of the weights."""
        tape, tree = ctx.tape, ctx.tree
        came, found = tape.lean.back(gradient, tape.layers, ctx.nodes, tree.depth, parts_of(tree))
        return came, None, None, None, *(found[weight] for weight in ctx.weights)


def recalled(model: Any, tape: Tape | None, tree: Tree) -> Tensor | None:
    """What leaves the model's last layer for the nodes of a tree, if it is on tape."""
    nodes = tape.nodes(model, tree) if tape is not None else None
    if nodes is None:
        return None
    came: Any = model.model.embed_tokens(tree.token)
    return Recalled.apply(came, tape, tree, nodes, *model.model.layers.parameters())
