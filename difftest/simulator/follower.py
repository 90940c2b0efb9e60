"""Followers of a launch: objects that are called at defined points of each instruction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Told = tuple[Callable[..., None], ...]


class Follower:
    """An observer of a launch, with a state of its own."""

    name = ""
    """The attribute of :class:`Followers` that holds this follower."""

    def beside(self, core: Any) -> Follower:
        """Return the follower of another core of the launch."""
        return self


class Followers:
    """The followers of one core, in order: for each point, the methods with its name.

    A point that no follower defines costs nothing.
    """

    asked: Told
    """``(issued)``: an instruction is requested; its rules are checked next."""
    before: Told
    """``(call, issued)``: the rules hold. Nothing has been read yet, and ``dst`` exists."""
    after: Told
    """``(call, issued)``: the instruction has written, and the validity codes are updated."""
    whole: Told
    """``(call, issued, mask)``: all parts of a masked instruction are issued."""
    happened: Told
    """``(opcode, writes, reads)``: an effect has finished."""
    touched: Told
    """``(number, touched)``: an instruction or an effect was counted, with its accesses."""
    wrote: Told
    """``(tile)``: a tensor has data that no instruction wrote."""

    def __init__(self, *followers: Follower) -> None:
        self.all = followers
        self.observer: Any = None
        self.shadow: Any = None
        self.oracle: Any = None
        self.events: Any = None
        for point in Followers.__annotations__:
            methods = [getattr(each, point, None) for each in followers]
            setattr(self, point, tuple(filter(None, methods)))
        for follower in followers:
            if follower.name:
                setattr(self, follower.name, follower)

    def beside(self, core: Any) -> Followers:
        """Return the followers of another core of the launch."""
        return Followers(*(follower.beside(core) for follower in self.all))


NOBODY = Followers()
