"""A plugin of tox for this project: ``type`` runs on the first fitting Python that is here.

tox takes the first of several in ``base_python``, and tox-uv looks at no other.
"""

from __future__ import annotations

import shutil

from tox.config.loader.memory import MemoryLoader
from tox.config.sets import EnvConfigSet
from tox.plugin import impl
from tox.session.state import State

TYPE_PYTHONS = ("python3.13", "python3.12", "python3.14")
"""Pythons for which NumPy has its present types; 3.10 and 3.11 have older releases of NumPy."""


@impl
def tox_add_env_config(env_conf: EnvConfigSet, state: State) -> None:
    """Choose the Python of ``type``; without any, tox skips it as one that is missing."""
    if env_conf.name == "type":
        here = [name for name in TYPE_PYTHONS if shutil.which(name)]
        env_conf.loaders.insert(0, MemoryLoader(base_python=[*here, *TYPE_PYTHONS][:1]))
