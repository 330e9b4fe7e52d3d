# SPDX-License-Identifier: Apache-2.0
"""The result of a compilation as callers get it, which can be shown in notebooks and saved as a folder."""

from __future__ import annotations

from pathlib import Path

from .. import notebook, paths
from ..errors import shortened
from . import bundle
from .compiled import Compiled
from .manifest import MANIFEST


class Artifact(Compiled):
    """A compiled model (`Compiled`) with methods to write it."""

    def __repr__(self) -> str:
        ports = [", ".join(f"'{port['name']}': {'strings' if 'text' in port else port['dtype']}"
                           f"[{','.join(map(str, port['shape']))}]" for port in self.manifest[kind])
                 for kind in ("inputs", "outputs")]
        return (f"<Artifact {self.name} for {', '.join(target.name for target in self.targets)}: "
                f"{shortened(' -> '.join(ports), 200)}; {len(self.sources)} C files, "
                f"container of {len(self.image):,} bytes>")

    def _repr_html_(self) -> str:
        title = (f"{self.name} for {', '.join(target.name for target in self.targets)}: {len(self.sources)} C files, "
                 f"container of {len(self.image):,} bytes")
        return notebook.model(title, self.manifest, self.memory, self.targets[0].name)

    def save(self, folder: str | Path, embed: bool | str = False, force: bool = False) -> Path:
        """Writes the generated folder and returns its path; see `bundle.write`.

        Args:
            folder: where to write; an earlier folder of ours is replaced in one step.
            embed: whether the weights become a part of the C code, or how: "text", "incbin" or "auto".
            force: replaces a folder that holds other files, too.
        """
        return bundle.write((self,), folder, embed=embed, force=force)

    def save_in_cache(self) -> Path:
        """Writes the generated folder to the cache, in a place named after its contents, so that equal ones are built
        once. Returns its path."""
        # The manifest has the digests of all other files.
        key = bundle.sha256(bundle.contents((self,))[MANIFEST])[:16]
        return self.save(paths.cache("artifacts") / f"{self.name}-{key}", force=True)
