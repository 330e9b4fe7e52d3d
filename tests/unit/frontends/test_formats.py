# SPDX-License-Identifier: Apache-2.0
"""Files and objects that are no ONNX models: the message says what they are and which command makes ONNX of them."""

import io
import pickle
import zipfile

import numpy as np
import pytest

import tvm_megcc
from tvm_megcc import paths
from tvm_megcc.cli import REFUSED, main
from tvm_megcc.errors import MegccError
from tvm_megcc.frontends import formats

DIGITS = (paths.examples() / "digits.onnx").read_bytes()


def zipped(*names: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        for name in names:
            file.writestr(name, "")
    return data.getvalue()


FILES = {
    "net.pt": (zipped("net/data.pkl", "net/data/0"), "file of PyTorch", "torch.onnx.export"),
    "old.pth": (pickle.dumps([1], 2), "file of PyTorch", "load_state_dict(torch.load("),
    "net.ckpt": (zipped("net/data.pkl"), "checkpoint", "to_onnx("),
    "script.pt": (zipped("script/data.pkl", "script/code/net.py"), "TorchScript", "torch.jit.load("),
    "net.safetensors": (b"\x10\0\0\0\0\0\0\0{}", "weights", "optimum-cli export onnx"),
    "net.h5": (b"\x89HDF\r\n\x1a\n", "Keras", "tf2onnx.convert --saved-model"),
    "net.keras": (zipped("config.json", "model.weights.h5"), "Keras", "keras.models.load_model("),
    "frozen.pb": (b"\x0a\x04\x0a\x02xy", "TensorFlow", "tf2onnx.convert --graphdef"),
    "net.mlmodel": (b"\x08\x04", "Core ML", "convert_coreml"),
    "net.pdmodel": (b"\x0a\x04\x0a\x02xy", "Paddle", "paddle2onnx --model_dir"),
    "net.model": (b"GGUF", "a GGUF file by its contents", "a name that ends in .gguf"),
    "net.xml": (b"<?xml", "OpenVINO", "export the model that it was made from"),
    "net.onnx.gz": (b"\x1f\x8b\x08", "archive", "Unpack"),
    "net.bin": (b"TFL3", "weights", "optimum-cli"),
    "lite.model": (b"\x1c\0\0\0TFL3", "TFLite", ".tflite"),
    "pointer.onnx": (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS", "git lfs pull"),
    "page.onnx": (b"<!DOCTYPE html><html>", "web page", "Download"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file(name, tmp_path, capsys):
    data, what, how = FILES[name]
    path = tmp_path / name
    path.write_bytes(data)
    assert main(["compile", str(path), "-o", str(tmp_path / "out")]) == REFUSED
    said = capsys.readouterr().err
    assert what in said and how in said and str(path) in said and "{" not in said.replace("{}", "")


def test_commands_can_be_copied_for_any_name(tmp_path):
    path = tmp_path / "it's \"mine\" {x}.pb"
    path.write_bytes(b"\x0a\x04\x0a\x02xy")
    with pytest.raises(MegccError) as refused:
        tvm_megcc.compile(path)
    assert formats.shlex.quote(str(path)) in str(refused.value)


@pytest.mark.parametrize("name", ["digits.pb", "digits", "digits.bin", "digits.onnx"])
def test_a_model_under_any_name(name, tmp_path):
    (tmp_path / name).write_bytes(DIGITS)
    assert tvm_megcc.compile(tmp_path / name, "c").name == "digits"


@pytest.mark.parametrize(("inside", "what", "how"), [
    ("saved_model.pb", "SavedModel", "tf2onnx.convert --saved-model"),
    ("config.json", "Hugging Face", "optimum-cli export onnx --model"),
    ("some.onnx", "a folder", "some.onnx"), ("text", "a folder", "Give the file of a model")])
def test_a_folder(inside, what, how, tmp_path):
    (tmp_path / inside).write_text("")
    with pytest.raises(MegccError) as refused:
        tvm_megcc.compile(tmp_path)
    assert what in str(refused.value) and how in str(refused.value)


def test_a_compiled_folder(tmp_path):
    folder = tvm_megcc.compile(DIGITS, "c").save(tmp_path / "out")
    with pytest.raises(MegccError, match="is compiled already"):
        tvm_megcc.compile(folder)


def test_objects():
    for module, how in (("torch.nn.modules.module", "torch.onnx.export"), ("keras.src.models.model", "tf2onnx")):
        base = type("Module", (), {"__module__": module})
        with pytest.raises(MegccError, match=how):
            tvm_megcc.compile(type("Net", (base,), {})())
    for wrong in (None, 7, np.zeros(3), {}):
        with pytest.raises(MegccError, match="give the path of an ONNX or TFLite file"):
            tvm_megcc.compile(wrong)
    with pytest.raises(MegccError, match=r"torch\.onnx\.export|Load it where it was made"):
        tvm_megcc.compile(pickle.dumps([1], 2))
