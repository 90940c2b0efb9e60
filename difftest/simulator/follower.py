"""What goes beside a launch: it is told of each instruction, at the points that it defines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Told = tuple[Callable[..., None], ...]


class Follower:
    """What a launch has beside the machine, with a state of its own."""

    name = ""
    """That by which others ask for it: an attribute of :class:`Followers`."""

    def beside(self, core: Any) -> Follower:
        """The follower of another core of the launch."""
        return self


class Followers:
    """Those of one core, in the order of a list: for each point the methods that have its name.

    A point that nobody defines costs nothing.
    """

    asked: Told
    """``(issued)``: an instruction was asked for; its rules are checked next."""
    before: Told
    """``(call, issued)``: it keeps them. Nothing is read yet, and its ``dst`` is there."""
    after: Told
    """``(call, issued)``: it has written, and what is not defined of that is known."""
    whole: Told
    """``(call, issued, mask)``: all was issued that a mask leaves of it, by one that is a part."""
    happened: Told
    """``(opcode, writes, reads)``: an effect has come to its end."""
    touched: Told
    """``(number, touched)``: it, or an effect, was counted, with what it read and wrote."""
    wrote: Told
    """``(tile)``: a tensor holds what no instruction wrote."""

    def __init__(self, *followers: Follower) -> None:
        self.all = followers
        self.observer: Any = None
        self.shadow: Any = None
        self.oracle: Any = None
        self.events: Any = None
        for point in Followers.__annotations__:
            told = [getattr(each, point) for each in followers if hasattr(each, point)]
            setattr(self, point, tuple(told))
        for follower in followers:
            if follower.name:
                setattr(self, follower.name, follower)

    def beside(self, core: Any) -> Followers:
        """Those of another core of the launch."""
        return Followers(*(follower.beside(core) for follower in self.all))


NOBODY = Followers()
