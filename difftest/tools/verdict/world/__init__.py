"""The closed world of a candidate: the values that its Python can hold, and their attributes.

A candidate's source is compiled so that each way from one value to another calls a guard: an
attribute, a call, a text, a class statement, an import, ``with``, ``except`` and ``match``
(:mod:`.guard`). Guards decide by the exact type of an object (:mod:`.values`), never by a name in
the source alone. Items, operators and loops of listed types give listed types, and stay Python's
own. docs/reference/language.md states the rules for authors of kernels.
"""
