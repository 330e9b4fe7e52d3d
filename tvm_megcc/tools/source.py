# SPDX-License-Identifier: Apache-2.0
"""Interprets PATH on the command line: a generated folder, its .megcc file, or a model to compile."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .. import api, folders, paths
from ..codegen.bundle import MANIFEST, read_manifest
from ..dispatch import parse_shape_sets, shapes_by_model
from ..errors import MegccError
from ..foreign import identifier
from ..frontends.formats import refuse_unreadable
from ..frontends.models import input_names
from ..options import CompileOptions, option_of
from ..runtime.build import generated_folder
from . import config

if TYPE_CHECKING:
    from ..runtime.device import DeviceSession
    from ..runtime.emulator.run import EmulatedSession
    from ..runtime.session import Session

#: The options of `megcc compile` that concern the folder -> their defaults.
FOLDER_OPTIONS = {"output": None, "target": "native", "embed": False, "weights": None, "force": False}


def folder_of(path: str | Path, args, embed: bool | str = False, name: str | None = None) -> Path:
    """Returns the generated folder. A model is compiled into the cache with `args.options` for `args.target`.

    args: the command line. embed: as for `Artifact.save`. name: what the model is called, by default as its file.
    """
    path = Path(path)
    folders.require_exists(path)
    if path.suffix == ".megcc":
        path = generated_folder(path)[0]
    if path.is_dir():
        if not (path / MANIFEST).exists():
            refuse_unreadable(path)
        read_manifest(path)
        given = [option_of(row).flag for row in args.options.given()]
        if given:
            raise MegccError(f"{path} is compiled already, {', '.join(given)} cannot change it: give that to "
                             "'megcc compile', or the ONNX model in place of the folder"
                             + ("; which shape to run with is said with --shape" if "--input-shapes" in given else ""))
        return path
    artifact = api.compile(path, args.target or "native", args.options,
                           name=identifier(name.rpartition("/")[2]) if name else "")
    # The folder is kept, so that only changed files are built again; building takes longer than compiling.
    where = [str(path.resolve()), args.target, name, args.options, *([f"embed {embed}"] if embed else [])]
    key = hashlib.sha256(repr(where).encode()).hexdigest()[:16]
    folder = artifact.save(paths.cache("models") / f"{artifact.name}-{key}", embed, force=True)
    args.compiled = folder, path  # so that messages name the model instead of the folder (`cli.main`)
    return folder


def model_of(path: str | Path, args) -> str | None:
    """Returns which of the folder's models is meant: that of --model, or the one whose .megcc file is given."""
    return args.model_name or (Path(path).stem if Path(path).suffix == ".megcc" else None)


def described(path: str, args) -> tuple[argparse.Namespace, list[tuple[str, str, CompileOptions]]]:
    """Reads a description of several models (`tools.config`). Returns the command line, completed by the description's
    settings of the folder, and the models as `each_model` does. Options of the command line override the description.

    Raises:
        MegccError: as `config.read`, and if two models have the same name.
    """
    if args.name:
        raise MegccError("--config says what models are called: leave out --name")
    folder, models = config.read(path)
    _refuse_same_names([model.name for model in models])
    changed = {name: getattr(args, name) for name, default in FOLDER_OPTIONS.items() if getattr(args, name) != default}
    given = {row.name: getattr(args.options, row.name) for row in args.options.given()}
    return argparse.Namespace(**{**vars(args), **folder, **changed}), [
        (model.path, model.name, CompileOptions(**{**model.options, **given})) for model in models]


def _refuse_same_names(names: Sequence[str]) -> None:
    taken = [identifier(name) for name in names]
    twice = next((name for name in taken if taken.count(name) > 1), None)
    if twice:
        raise MegccError(f"two models have the same name, '{twice}': name all of them, with --name A,B in this order "
                         "or 'name' in a description")


def each_model(args) -> list[tuple[str, str, CompileOptions]]:
    """Returns path, name and options of each model of `megcc compile`; --name and --input-shapes may differ for each.

    Raises:
        MegccError: if there are more or fewer names than models, or the same for two, or a shape is for none of them.
    """
    names = args.name.split(",") if args.name else [Path(path).stem for path in args.model]
    if len(names) != len(args.model):
        raise MegccError(f"--name has {len(names)} names for {len(args.model)} models: one each, separated by ','")
    _refuse_same_names(names)
    models, shapes = list(zip(args.model, names, strict=True)), args.options.input_shapes
    if len(models) == 1 or not shapes:
        return [(path, name, args.options) for path, name in models]
    inputs = {identifier(name): input_names(path, args.options.signature) for path, name in models}
    by_model = shapes_by_model(parse_shape_sets(shapes), inputs)
    return [(path, name, replace(args.options, input_shapes=by_model[identifier(name)])) for path, name in models]


def session_of(path: str | Path, args) -> Session:
    """Returns a session on a model, building it if necessary; in an emulator if this machine does not run the
    target."""
    from ..runtime.load import load

    return load(folder_of(path, args), args.target or None, args.cc, model_of(path, args))


def timed_session_of(path: str | Path, args) -> DeviceSession | EmulatedSession:
    """Returns a session in this process that takes its own times; on a microcontroller, one whose instructions are
    counted."""
    from ..runtime.build import read_manifest, target_of
    from ..runtime.device import local_session
    from ..runtime.emulator.run import EmulatedSession
    from ..runtime.load import load

    folder, model = folder_of(path, args), model_of(path, args)
    target = target_of(read_manifest(folder), args.target or None, folder)
    if target.bare_metal or target.machine == "wasm32":
        session = load(folder, args.target or None, args.cc, model)
        assert isinstance(session, EmulatedSession)
        session.counted = target.bare_metal
        return session
    return local_session(folder, args.target or None, args.cc, model)


def remote_session_of(path: str | Path, args) -> DeviceSession:
    """Returns a session on a device reached through TVM's RPC.

    Raises:
        MegccError: if --key is missing, or there is no such device.
    """
    if not args.key:
        raise MegccError("--rpc HOST:PORT says where the tracker is; say which device with --key KEY")
    from ..runtime.remote import remote_session

    return remote_session(folder_of(path, args), args.rpc, args.key, args.target or None, args.cc,
                          model_of(path, args))
