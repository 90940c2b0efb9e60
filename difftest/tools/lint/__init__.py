"""``difftest lint``: report code that the compiler would reject, from a kernel's source and trace.

A rule consists of data (:class:`~difftest.tools.lint.rule.Rule`), a check of syntax nodes or of a
trace, and a page with a wrong and a right kernel. The linter itself runs no kernel.
"""
