# SPDX-License-Identifier: Apache-2.0
"""What a PATH on the command line stands for: a generated folder, its .megcc file, or an ONNX model to compile."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .. import api, paths
from ..codegen.bundle import MANIFEST, read_manifest
from ..context import Regions
from ..dispatch import parse_shape_sets, shapes_by_model
from ..errors import MegccError
from ..foreign import identifier
from ..frontends.formats import refuse_unreadable
from ..frontends.models import input_names
from ..named_dims import parse_dims
from ..runtime.build import generated_folder
from . import config

if TYPE_CHECKING:
    from ..runtime.device import DeviceSession
    from ..runtime.emulator.run import EmulatedSession
    from ..runtime.session import Session

#: Options that change the generated code: as written, in the parsed command line, and where they are not given.
COMPILE_FLAGS = (
    ("-O", "optimize", "speed"), ("--input-shapes", "input_shapes", None), ("--dispatch", "dispatch", None),
    ("--dim", "dim", []),
    ("--input", "input", []), ("--output-names", "output_names", []), ("--constant", "constant", []),
    ("--bound", "bound", []), ("--signature", "signature", ""),
    ("--state", "state", []), ("--extern", "extern", []), ("--log", "log", None), ("--threads", "threads", 1),
    ("--keep-inputs", "keep_inputs", False), ("--ram", "ram", None), ("--flash", "flash", None),
    ("--caller-inputs", "caller_inputs", False), ("--region", "region", None),
    ("--reproducible", "reproducible", False), ("--half", "half", False), ("--stream", "stream", None))
#: Those that `megcc compile` has for the folder.
FOLDER_FLAGS = (("-o", "output", None), ("--target", "target", "native"), ("--embed", "embed", False),
                ("--force", "force", False))


def folder_of(path: str | Path, options, embed: bool = False, name: str | None = None) -> Path:
    """The generated folder. A model is compiled into the cache with the options of the command line, as a constant
    array if `embed` says so, and called `name`."""
    path = Path(path)
    if not path.exists():
        raise MegccError(f"{path} does not exist")
    if path.suffix == ".megcc":
        path = generated_folder(path)[0]
    if path.is_dir():
        if not (path / MANIFEST).exists():
            refuse_unreadable(path)
        read_manifest(path)
        given = [flag for flag, name, default in COMPILE_FLAGS if getattr(options, name) != default]
        if given:
            raise MegccError(f"{path} is compiled already, {', '.join(given)} cannot change it: give that to "
                             "'megcc compile', or the ONNX model in place of the folder"
                             + ("; which shape to run with is said with --shape" if "--input-shapes" in given else ""))
        return path
    arguments = compile_arguments(options)
    if name:
        arguments["name"] = identifier(name.rpartition("/")[2])
    artifact = api.compile(path, options.target or "native", **arguments)
    # Compiling takes a moment, building takes longer: the folder stays, so that only what changed is built again.
    where = [str(path.resolve()), options.target, arguments, *["embed"] * embed]
    key = hashlib.sha256(repr(where).encode()).hexdigest()[:16]
    return artifact.save(paths.cache("models") / f"{artifact.name}-{key}", embed, force=True)


def model_of(path: str | Path, options) -> str | None:
    """Which of the folder's models is meant: the one of --model, or the one whose .megcc file is given."""
    return options.which or (Path(path).stem if Path(path).suffix == ".megcc" else None)


def described(path: str, options) -> tuple[argparse.Namespace, list[tuple[str, str, dict]]]:
    """The options of the folder, and `each_model`, of a description of several models (`tools.config`).

    Raises:
        MegccError: as `config.read`, and if two models have the same name.
    """
    if options.name:
        raise MegccError("--config says what models are called: leave out --name")
    given = [name for _, name, default in (*COMPILE_FLAGS, *FOLDER_FLAGS) if getattr(options, name) != default]
    folder, models = config.read(path, options, given)
    _refuse_same_names([model.name for model in models])
    return folder, [(model.path, model.name, compile_arguments(model)) for model in models]


def _refuse_same_names(names: Sequence[str]) -> None:
    taken = [identifier(name) for name in names]
    twice = next((name for name in taken if taken.count(name) > 1), None)
    if twice:
        raise MegccError(f"two models have the same name, '{twice}': name all of them, with --name A,B in this order "
                         "or 'name' in a description")


def each_model(options) -> list[tuple[str, str, dict]]:
    """Path, name, and arguments of `api.compile` of the models of `megcc compile`; --name and --input-shapes tell them
    apart.

    Raises:
        MegccError: if there are more or fewer names than models, or the same for two, or a shape is for none of them.
    """
    names = options.name.split(",") if options.name else [Path(path).stem for path in options.model]
    if len(names) != len(options.model):
        raise MegccError(f"--name has {len(names)} names for {len(options.model)} models: one each, separated by ','")
    _refuse_same_names(names)
    arguments, shapes = compile_arguments(options), options.input_shapes
    if len(names) == 1 or not shapes:
        return [(path, name, arguments) for path, name in zip(options.model, names, strict=True)]
    inputs = {identifier(name): input_names(path, options.signature)
              for path, name in zip(options.model, names, strict=True)}
    own = shapes_by_model(parse_shape_sets(shapes), inputs)
    return [(path, name, {**arguments, "input_shapes": own[identifier(name)]})
            for path, name in zip(options.model, names, strict=True)]


def compile_arguments(options) -> dict:
    """The options of the command line that change the generated code, as arguments of `api.compile`."""
    return {"optimize": options.optimize, "threads": options.threads, "keep_inputs": options.keep_inputs,
            "log": options.log, "ram": options.ram, "flash": options.flash,
            "caller_inputs": options.caller_inputs, "regions": options.region, "reproducible": options.reproducible,
            "half": options.half,
            **graph_arguments(options),
            "inputs": api.parse_inputs(options.input)}


def regions_of(options) -> Regions | None:
    """The memories that --region names."""
    return None if options.region is None else Regions.parse(options.region)


def graph_arguments(options) -> dict:
    """Those that change the imported graph, as arguments of `import_model`."""
    return {"input_shapes": options.input_shapes, "dispatch": options.dispatch,
            "constants": api.parse_constants(options.constant), "bounds": api.parse_bounds(options.bound),
            "output_names": api.parse_output_names(options.output_names), "extern": options.extern,
            "states": api.parse_states(options.state), "dims": parse_dims(options.dim), "stream": options.stream,
            "signature": options.signature}


def session_of(path: str | Path, options) -> Session:
    """A session on it, built if need be; in an emulator where this machine does not run the target."""
    from ..runtime.load import load

    return load(folder_of(path, options), options.target or None, options.cc, model_of(path, options))


def timed_session_of(path: str | Path, options) -> DeviceSession | EmulatedSession:
    """A session in this process that takes its own times; on a microcontroller, one whose instructions are counted."""
    from ..runtime.build import read_manifest, target_of
    from ..runtime.device import local_session
    from ..runtime.emulator.run import EmulatedSession
    from ..runtime.load import load

    folder, model = folder_of(path, options), model_of(path, options)
    target = target_of(read_manifest(folder), options.target or None, folder)
    if target.bare_metal or target.machine == "wasm32":
        session = load(folder, options.target or None, options.cc, model)
        assert isinstance(session, EmulatedSession)
        session.counted = target.bare_metal
        return session
    return local_session(folder, options.target or None, options.cc, model)


def remote_session_of(path: str | Path, options) -> DeviceSession:
    """A session on a device behind TVM's RPC.

    Raises:
        MegccError: if --key is missing, or there is no such device.
    """
    if not options.key:
        raise MegccError("--rpc HOST:PORT says where the tracker is; say which device with --key KEY")
    from ..runtime.remote import remote_session

    return remote_session(folder_of(path, options), options.rpc, options.key, options.target or None, options.cc,
                          model_of(path, options))
