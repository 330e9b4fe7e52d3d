# SPDX-License-Identifier: Apache-2.0
"""Files and objects that are no ONNX models: the message says what they are and which command makes ONNX of them."""

import io
import os
import pickle
import zipfile

import numpy as np
import pytest

import tvm_megcc
from tests.tflite_files import written
from tvm_megcc import paths
from tvm_megcc.cli import REFUSED, main
from tvm_megcc.errors import MegccError
from tvm_megcc.frontends import formats
from tvm_megcc.frontends.models import import_model, input_names

DIGITS = (paths.examples() / "digits.onnx").read_bytes()


def zipped(*names: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        for name in names:
            file.writestr(name, "")
    return data.getvalue()


#: How names of files end that are models.
NAMES = (".onnx", ".tflite", ".gguf", ".pt2")
FILES = {
    "net.pt": (zipped("net/data.pkl", "net/data/0"), "file of PyTorch", "torch.onnx.export"),
    "old.pth": (pickle.dumps([1], 2), "file of PyTorch", "load_state_dict(torch.load("),
    "estimator.model": (pickle.dumps([1], 4), "a pickle of Python", "skl2onnx.to_onnx"),
    "net.ckpt": (zipped("net/data.pkl"), "checkpoint", "to_onnx("),
    "script.pt": (zipped("script/data.pkl", "script/code/net.py"), "TorchScript", "torch.jit.load("),
    "net.safetensors": (b"\x10\0\0\0\0\0\0\0{}", "weights", "optimum-cli export onnx"),
    "net.h5": (b"\x89HDF\r\n\x1a\n", "Keras", "tf2onnx.convert --saved-model"),
    "net.keras": (zipped("config.json", "model.weights.h5"), "Keras", "keras.models.load_model("),
    "frozen.pb": (b"\x0a\x04\x0a\x02xy", "TensorFlow", "tf2onnx.convert --graphdef"),
    "net.mlmodel": (b"\x08\x04", "Core ML", "convert_coreml"),
    "net.pdmodel": (b"\x0a\x04\x0a\x02xy", "Paddle", "paddle2onnx --model_dir"),
    "net.xml": (b"<?xml", "OpenVINO", "export the model that it was made from"),
    "net.onnx.gz": (b"\x1f\x8b\x08", "archive", "Unpack"),
    "net.bin": (b"TFL3", "weights", "optimum-cli"),
    "runtime.onnx": (b"\x1c\0\0\0ORTM", "ONNX Runtime alone", "export the model that it was made from"),
    **{f"pointer{name}": (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS", "git lfs pull")
       for name in NAMES},
    **{f"page{name}": (b"\xef\xbb\xbf\n <!DOCTYPE HTML><html>", "web page", "Download") for name in NAMES},
    **{f"message{name}": (b"Entry not found\n", "a text that begins with 'Entry not found'", "Download")
       for name in NAMES},
    **{f"empty{name}": (b"", "an empty file", "again") for name in NAMES},
    **{f"archive{name}": (zipped("model.onnx"), "archive", "Unpack") for name in NAMES if name != ".pt2"},
    "keras.tflite": (b"\x89HDF\r\n\x1a\n", "Keras", "tf2onnx.convert --saved-model"),
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


@pytest.mark.parametrize("name", ["digits.pb", "digits", "digits.bin", *(f"digits{name}" for name in NAMES)])
def test_a_model_under_any_name(name, tmp_path):
    (tmp_path / name).write_bytes(DIGITS)
    assert tvm_megcc.compile(tmp_path / name, "c").name == "digits"


@pytest.mark.parametrize("name", ["m", "m.lite", "m.TFLITE", "m.bin", *(f"m{name}" for name in NAMES)])
def test_a_tflite_file_under_any_name(name, tmp_path):
    pytest.importorskip("tflite")
    (tmp_path / name).write_bytes(written({"x": (2,), "y": (2,)}, [("RELU", "", {}, ["x"], ["y"])], ["x"], ["y"]))
    assert [op.kind for op in import_model(tmp_path / name)[0].ops]
    assert input_names(tmp_path / name) and tvm_megcc.compile(tmp_path / name, "c").name == "m"


@pytest.mark.parametrize("name", ["m", "m.bin", *(f"m{name}" for name in NAMES)])
def test_a_gguf_file_under_any_name(name, tmp_path):
    (tmp_path / name).write_bytes(b"GGUF\x07\0\0\0")
    with pytest.raises(MegccError, match="has version 7"):
        import_model(tmp_path / name)


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_under_the_name_of_a_file(name, tmp_path):
    (tmp_path / f"m{name}").mkdir()
    with pytest.raises(MegccError, match="is a folder"):
        import_model(tmp_path / f"m{name}")


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_may_not_be_read(name, tmp_path):
    (tmp_path / f"m{name}").write_bytes(DIGITS)
    (tmp_path / f"m{name}").chmod(0)
    if os.access(tmp_path / f"m{name}", os.R_OK):
        pytest.skip("who runs this may read anything")
    with pytest.raises(MegccError, match="Permission denied"):
        import_model(tmp_path / f"m{name}")
    (tmp_path / "closed").mkdir(mode=0)
    with pytest.raises(MegccError, match=r"cannot be read: Permission denied$"):
        import_model(tmp_path / "closed" / f"m{name}")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
@pytest.mark.parametrize("name", NAMES)
def test_a_pipe(name, tmp_path):
    os.mkfifo(tmp_path / f"m{name}")
    with pytest.raises(MegccError, match="is a pipe"):
        import_model(tmp_path / f"m{name}")


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
