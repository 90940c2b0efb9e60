"""What the compiler would refuse, read off a kernel's source and trace: ``difftest lint``.

A rule is data (:class:`~difftest.tools.lint.rule.Rule`), a function that looks at one kind of node
or reads a trace, and a page with a wrong and a right kernel. No kernel runs in here.
"""
