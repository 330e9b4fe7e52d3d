# SPDX-License-Identifier: Apache-2.0
"""What a PATH on the command line stands for: a generated folder, its .megcc file, or an ONNX model to compile."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from .. import api, paths
from ..codegen.bundle import read_manifest
from ..errors import MegccError

if TYPE_CHECKING:
    from ..runtime.device import DeviceSession
    from ..runtime.session import Session


def folder_of(path: str | Path, options) -> Path:
    """The generated folder. An ONNX model is compiled into the cache with the options of the command line."""
    path = Path(path)
    if not path.exists():
        raise MegccError(f"{path} does not exist")
    if path.suffix == ".megcc":
        path = path.parent
    if path.is_dir():
        read_manifest(path)
        return path
    artifact = api.compile(path, options.target or "native", input_shapes=options.input_shapes,
                           dispatch=options.dispatch, optimize=options.optimize, threads=options.threads,
                           keep_inputs=options.keep_inputs,
                           states=api.parse_states(options.state), constants=api.parse_constants(options.constant),
                           log=options.log)
    # Compiling takes a moment, building takes longer: the folder stays, so that only what changed is built again.
    where = [str(path.resolve()), options.target, options.input_shapes, options.dispatch, options.optimize,
             options.threads, options.keep_inputs, options.state, options.constant, options.log]
    key = hashlib.sha256(repr(where).encode()).hexdigest()[:16]
    return artifact.save(paths.cache() / "models" / f"{artifact.name}-{key}", force=True)


def session_of(path: str | Path, options) -> Session:
    """A session on it, built if need be; in an emulator where this machine does not run the target."""
    from ..runtime.session import load

    return load(folder_of(path, options), options.target or None, options.cc)


def timed_session_of(path: str | Path, options) -> DeviceSession:
    """A session in this process that takes its own times."""
    from ..runtime.device import local_session

    return local_session(folder_of(path, options), options.target or None, options.cc)


def remote_session_of(path: str | Path, options) -> DeviceSession:
    """A session on a device behind TVM's RPC.

    Raises:
        MegccError: if --key is missing, or there is no such device.
    """
    if not options.key:
        raise MegccError("--rpc HOST:PORT says where the tracker is; say which device with --key KEY")
    from ..runtime.remote import remote_session

    return remote_session(folder_of(path, options), options.rpc, options.key, options.target or None, options.cc)
