# SPDX-License-Identifier: Apache-2.0
"""Recognises model formats that are not supported, and knows the commands that convert each to ONNX."""

from __future__ import annotations

import errno
import os
import shlex
import stat
import zipfile
from dataclasses import dataclass
from pathlib import Path

import onnx

from ..errors import MegccError, ModelError, shortened
from ..folders import require_exists
from .contents import MAGIC_SIZE, is_onnx, kind_by_magic, kind_of, leading_bytes
from .onnx.load import LoadedModel


@dataclass(frozen=True)
class Format:
    """A model format.

    name: its name in messages, such as "a Keras model".
    conversion: the command that converts it to ONNX. Its fields {path}, {folder} and {stem} are quoted for a shell,
        {file} for Python.
    """

    name: str
    conversion: str


def _export_script(load: str) -> str:
    """Returns a Python script that exports a PyTorch module. load: the expression that gives the module."""
    return f"""\
      import torch
      model = {load}
      example = torch.randn(1, 3, 224, 224)  # or what your model takes
      torch.onnx.export(model.eval(), (example,), "model.onnx")"""


def _export_with_weights(weights: str, make: str = "make") -> str:
    """Returns advice to export a PyTorch module with weights of a file. weights: the expression that gives the weights.
    make: the first word of the advice, "Make" at the beginning of a sentence."""
    return f"{make} the module in Python and export it:\n" \
        + _export_script(f"YourNetwork(); model.load_state_dict({weights})")


_TENSORFLOW = "'pip install tf2onnx tensorflow', then\n"
_WEB_PAGE = Format("a web page", "Download the file itself; the link was that of a page about it")

TORCH_FILE = Format("a file of PyTorch: weights or a pickled object, which is no network without its Python class",
                    _export_with_weights("torch.load({file})", make="Make")
                    + "\n  A YOLO file of Ultralytics: yolo export model={path} format=onnx")
TORCHSCRIPT = Format("a TorchScript file", "Export it in Python:\n" + _export_script("torch.jit.load({file})"))
TORCH_MODULE = Format("a module of PyTorch",
                "Export it:\n" + _export_script("…  # this module")
                + "\n  or let tvm_megcc.compile(model, example_inputs=(example,)) do that: pip install onnxscript\n"
                  "  or compile torch.export.export(model.eval(), (example,)): that comes in through TVM, "
                  "pip install 'tvm_megcc[tvm]' torch")
LIGHTNING = Format("a checkpoint of PyTorch",
                   'With Lightning: YourModule.load_from_checkpoint({file}).to_onnx("model.onnx", example)\n  else '
                   + _export_with_weights("torch.load({file})['state_dict']"))
WEIGHTS = Format("a file of weights, without the network",
                 "A model of Hugging Face: pip install 'optimum[onnxruntime]', then\n"
                 "      optimum-cli export onnx --model {folder} onnx\n"
                 "  Another: " + _export_with_weights("safetensors.torch.load_file({file})"))
TRANSFORMER = Format("a model of Hugging Face",
                     "pip install 'optimum[onnxruntime]', then\n      optimum-cli export onnx --model {path} onnx")
KERAS = Format("a Keras model",
               _TENSORFLOW + "      import keras\n"
               '      keras.models.load_model({file}).export("saved")  # in Python\n'
               "      python -m tf2onnx.convert --saved-model saved --output model.onnx")
KERAS_OBJECT = Format("a Keras model",
                      _TENSORFLOW + '      model.export("saved")  # in Python\n'
                      "      python -m tf2onnx.convert --saved-model saved --output model.onnx")
SAVED_MODEL = Format("a SavedModel of TensorFlow",
                     _TENSORFLOW + "      python -m tf2onnx.convert --saved-model {path} --output model.onnx")
FROZEN_GRAPH = Format("no ONNX model; so named are frozen graphs of TensorFlow",
                _TENSORFLOW + "      python -m tf2onnx.convert --graphdef {path} --inputs INPUT:0 --outputs OUTPUT:0 "
                "--output model.onnx\n  with the names of its inputs and outputs, separated by commas.\n"
                "  A saved_model.pb is a SavedModel: --saved-model {folder} takes the place of the first three options")
CORE_ML = Format("a Core ML model",
                 "'pip install onnxmltools coremltools', then in Python:\n"
                 "      spec = coremltools.utils.load_spec({file})\n"
                 '      onnx.save(onnxmltools.convert_coreml(spec), "model.onnx")\n'
                 "  That takes neural networks; an ML program cannot be turned into ONNX: export the model that it was "
                 "made from")
PADDLE = Format("a Paddle model",
                "'pip install paddle2onnx', then\n"
                "      paddle2onnx --model_dir {folder} --model_filename {stem}.pdmodel "
                "--params_filename {stem}.pdiparams --save_file model.onnx")
PICKLE = Format("a pickle of Python", "Load it where it was made, and export it: torch.onnx.export for a module of "
                                      "PyTorch, skl2onnx.to_onnx for one of scikit-learn")
ARCHIVE = Format("an archive", "Unpack it, and give the model that is in it")
COMPILED = Format("compiled already", "build, run, bench, verify, inspect and export take it, and 'compare MODEL "
                  "--folder'; compile, compare, explain, quantize, report and tune take the model it was compiled from")
EMPTY = Format("an empty file", "Export or download it again")
#: Formats that are supported as files and not as bytes, by the kinds of `contents.py`.
FILES_ONLY = {"tflite": Format("a TFLite file", "Write them into a file, and give its path"),
              "gguf": Format("a GGUF file", "Write them into a file, and give its path")}
_NO_CONVERTER = "Nothing turns that into ONNX: export the model that it was made from"

#: Formats by suffix.
FORMATS_BY_SUFFIX = {
    ".pt": TORCH_FILE, ".pth": TORCH_FILE, ".ckpt": LIGHTNING, ".safetensors": WEIGHTS, ".bin": WEIGHTS,
    ".h5": KERAS, ".hdf5": KERAS, ".keras": KERAS, ".pb": FROZEN_GRAPH, ".mlmodel": CORE_ML, ".mlpackage": CORE_ML,
    ".pdmodel": PADDLE, ".pkl": PICKLE, ".pickle": PICKLE, ".joblib": PICKLE,
    **dict.fromkeys((".zip", ".gz", ".tar", ".tgz", ".bz2", ".xz", ".zst", ".7z"), ARCHIVE),
    **{suffix: Format(f"a file for {engine}", _NO_CONVERTER) for suffix, engine in (
        (".mnn", "MNN"), (".param", "ncnn"), (".xml", "OpenVINO"), (".engine", "TensorRT"), (".plan", "TensorRT"),
        (".trt", "TensorRT"), (".ort", "ONNX Runtime alone"), (".rknn", "RKNN"), (".hef", "Hailo"), (".dlc", "SNPE"))},
}
#: Formats recognised by magic bytes, whatever the suffix: (offset of the bytes in the file, magic bytes, format).
FORMATS_BY_MAGIC = (
    (0, b"version https://git-lfs", Format("a pointer of Git LFS, not the file itself", "Fetch it: git lfs pull")),
    (0, b"\x89HDF\r\n", KERAS),  # HDF5
    (4, b"ORTM", FORMATS_BY_SUFFIX[".ort"]),  # the identifier of ONNX Runtime's flatbuffers
    (4, b"MGCC", COMPILED),  # the identifier of our containers
    (0, b"\x1f\x8b", ARCHIVE),  # gzip
    (0, b"PK\x03\x04", ARCHIVE),  # ZIP
    *((0, bytes((0x80, protocol)), PICKLE) for protocol in range(2, 6)),  # earlier protocols have no magic bytes
)
#: The first bytes of web pages, in lower case and without leading spaces.
_WEB_PAGE_STARTS = (b"<!doctype html", b"<html", b"<head", b"<!--")
#: Python objects of frameworks: (module of their class or of one of its base classes, format).
FORMATS_BY_CLASS = (("torch.nn", TORCH_MODULE), ("torch.jit", TORCH_MODULE), ("keras", KERAS_OBJECT),
                    ("tensorflow", KERAS_OBJECT))


def refuse_unreadable(model) -> None:
    """Raises ModelError for a model of a format that is not supported, saying how to convert it to ONNX.

    An unknown format is accepted here; reading it as ONNX gives the error.
    """
    if isinstance(model, (str, Path)):
        path = Path(model)
        _require_readable(path)
        _refuse(path, _folder_format(path) if path.is_dir() else _file_format(path) if path.is_file() else None)
    elif isinstance(model, (bytes, bytearray)):
        head = bytes(model[:MAGIC_SIZE])
        found = FILES_ONLY.get(kind_by_magic(head)) or _format_by_magic(head)
        if found is not None:
            raise ModelError("the bytes", [f"are {found.name}"], found.conversion.format(
                path="MODEL", folder=".", stem="model", file="'MODEL'"))
    elif not isinstance(model, (onnx.ModelProto, LoadedModel)):
        raise _not_a_model(model)


def require_model_file(model: str | Path) -> None:
    """Raises MegccError for a path that does not exist, a folder, a pipe, and the data of a compiled model."""
    path = Path(model)
    _require_readable(path)
    if path.is_dir() or _format_by_magic(leading_bytes(path)) is COMPILED:
        _refuse(path, _folder_format(path) if path.is_dir() else COMPILED)


def refuse_misnamed(model) -> None:
    """Raises ModelError for a file whose suffix belongs to one front end and whose contents to another.

    A file without known magic bytes is accepted here; the front end gives the error.
    """
    if kind_of(model):
        path = Path(model)
        _require_readable(path)
        head = leading_bytes(path)
        found: Format | None = None
        if path.is_dir():
            found = _folder_format(path)
        elif path.is_file() and not path.stat().st_size:
            found = EMPTY
        elif not kind_by_magic(head):
            found = _format_by_magic(head) or _text_format(head)
        if kind_of(model) != "program" or found not in (ARCHIVE, PICKLE):  # a program of torch.export is an archive
            _refuse(path, found)


def _require_readable(path: Path) -> None:
    """Raises MegccError for a path that does not exist, a file without read permission, and a pipe, which can be read
    only once."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        require_exists(path)
    except PermissionError:
        mode = 0
    except OSError:
        return
    if stat.S_ISFIFO(mode):
        raise ModelError(str(path), ["is a pipe"], "Write the model into a file: it is read several times")
    if not mode or (stat.S_ISREG(mode) and not os.access(path, os.R_OK)):
        raise ModelError(str(path), [f"cannot be read: {os.strerror(errno.EACCES)}"])


def _refuse(path: Path, found: Format | None) -> None:
    """Raises ModelError with the command that converts the file, if its format is one that is not supported."""
    if found is not None:
        raise ModelError(str(path), [f"is {found.name}"], found.conversion.format(
            path=shlex.quote(str(path)), folder=shlex.quote(str(path.parent)), stem=shlex.quote(path.stem),
            file=repr(str(path))))


def _folder_format(path: Path) -> Format:
    if path.suffix in FORMATS_BY_SUFFIX:
        return FORMATS_BY_SUFFIX[path.suffix]
    if (path / "saved_model.pb").exists():
        return SAVED_MODEL
    if (path / "config.json").exists():
        return TRANSFORMER
    if (path / "manifest.json").exists() and (path / "kernels").is_dir():
        return COMPILED
    models = sorted(path.glob("*.onnx"))
    return Format("a folder", f"Give the model in it: {models[0]}" if models else
                  "Give the file of a model, such as model.onnx; no model and no folder of 'megcc compile' is here")


def _file_format(path: Path) -> Format | None:
    """Returns the format of a file by its contents or else by its suffix; None for an ONNX file and an unknown one."""
    head = leading_bytes(path)
    named, found = FORMATS_BY_SUFFIX.get(path.suffix.lower()), _format_by_magic(head)
    if not path.stat().st_size:
        return EMPTY
    if named is None and found is None:
        text = _text_format(head)
        return None if text is None or is_onnx(path) else text
    if found in (PICKLE, ARCHIVE) and zipfile.is_zipfile(path):
        # torch.save writes a ZIP archive with a pickle `data.pkl`, torch.jit.save also a folder `code`. Keras 3 writes
        # one with its weights as HDF5.
        names = zipfile.ZipFile(path).namelist()
        if any(name.endswith("/data.pkl") for name in names):
            return TORCHSCRIPT if any("/code/" in name for name in names) else named or TORCH_FILE
        if "model.weights.h5" in names:
            return KERAS
    if found not in (None, PICKLE, ARCHIVE):
        return found
    if found is None and is_onnx(path):  # an ONNX model whose suffix is that of another format
        return None
    return named or found


def _format_by_magic(head: bytes) -> Format | None:
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith(_WEB_PAGE_STARTS):
        return _WEB_PAGE
    return next((found for offset, magic, found in FORMATS_BY_MAGIC if head[offset:].startswith(magic)), None)


def _text_format(head: bytes) -> Format | None:
    """Returns the format of a file that begins with text, such as the error page that a server sends instead of a
    missing file; None for any other."""
    if not head.isascii() or not (words := head.decode("ascii").split()) or not "".join(words).isprintable():
        return None
    return Format(f"a text that begins with '{shortened(' '.join(words), 40)}'", "Download or export the model itself")


def _not_a_model(model) -> MegccError:
    """Returns the error for a Python object that no front end takes."""
    modules = [f"{part.__module__}." for part in type(model).__mro__]
    found = next((found for name, found in FORMATS_BY_CLASS
                  if any(module.startswith(f"{name}.") for module in modules)), None)
    kind = f"{type(model).__module__}.{type(model).__qualname__}".removeprefix("builtins.")
    if found is None:
        return MegccError(f"{'None' if model is None else kind} is no model that can be compiled: give the path of an "
                          "ONNX or TFLite file, the bytes of an ONNX file, an onnx.ModelProto, a "
                          "torch.export.ExportedProgram or a module of TVM")
    return ModelError(kind, [f"is {found.name}"], found.conversion.format(path="", folder="", stem="", file=""))
