# SPDX-License-Identifier: Apache-2.0
"""Our engine on one thread as a peer of itself on several, in the same run:

    megcc bench MODEL --threads 2 --against one=benchmarks/one_thread.py
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import peers  # tvm_megcc/tools/bench/peers.py, which loads this file


class Engine(peers.Megcc):
    def __init__(self, job):
        super().__init__(job)
        made_beside = hashlib.sha256(Path(job.library).read_bytes()).hexdigest()[:12]
        self.folder = self.folder.with_name(f"one-thread-{made_beside}")

    def convert(self, folder):
        import tvm_megcc
        from tvm_megcc.runtime.build import build

        artifact = tvm_megcc.compile(self.job.model, self.job.target, threads=1, name="model")
        build(artifact.save(folder / "model_megcc"), self.job.target)

    def load(self):
        self.job.folder = str(self.folder / "model_megcc")
        self.job.library = str(self.folder / "model_megcc" / "build" / self.job.target / "libmodel.so")
        return super().load()
