# SPDX-License-Identifier: Apache-2.0
"""Sessions as Python programs use them, and misuse them: every mistake is an error that says so, none a crash."""

import copy
import gc
import json
import os
import pickle
import shutil
import signal
import threading
from dataclasses import replace

import numpy as np
import pytest

import tvm_megcc
from tests.onnx_models import model, node, saved
from tvm_megcc import paths
from tvm_megcc.codegen import container
from tvm_megcc.errors import MegccError, ShapeError
from tvm_megcc.runtime.device import local_session
from tvm_megcc.target import native

X = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)


def compiled(tmp_path_factory, name: str, network, **options):
    """The folder of a model."""
    return tvm_megcc.compile(network, name=name, **options).save(tmp_path_factory.mktemp(name) / f"{name}_megcc")


def product_and_sum(tmp_path_factory, name: str, **options):
    """y = x @ w, s = x + x."""
    network = model([node("MatMul", "x w", "y"), node("Add", "x x", "s")], {"x": [2, 3]}, {"y": [2, 1], "s": [2, 3]},
                    {"w": np.array([[1], [2], [3]], np.float32)})
    return compiled(tmp_path_factory, name, network, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return product_and_sum(tmp_path_factory, "two")


@pytest.fixture
def session(folder):
    with tvm_megcc.load(folder) as session:
        yield session


@pytest.fixture(scope="module")
def open_folder(tmp_path_factory):
    """s = a + b of n integers."""
    numbers = "int32", ["n"]
    network = model([node("Add", "a b", "s")], {"a": numbers, "b": numbers}, {"s": numbers})
    return compiled(tmp_path_factory, "open", network, dispatch="a[0]=1..64")


def right(results, x=X):
    np.testing.assert_array_equal(results["y"], x @ np.array([[1], [2], [3]], np.float32))
    np.testing.assert_array_equal(results["s"], x + x)
    return True


def test_all_ways_to_call(session):
    y, s = session(X)
    assert right({"y": y, "s": s})
    assert all(map(right, (session.run({"x": X}), session.run([X]), session.run(X),
                           dict(zip(("y", "s"), session(x=X), strict=True)))))
    assert [(port.name, port.type, port.shape, port.dtype) for port in session.get_inputs()] == \
        [("x", "tensor(float)", (2, 3), "float32")]
    assert [port.name for port in session.get_outputs()] == ["y", "s"]
    np.testing.assert_array_equal(session([[1, 2, 3], [4, 5, 6]])[1], [[2, 4, 6], [8, 10, 12]])


def test_what_is_shown_of_it(session):
    assert repr(session).endswith("'x': float32[2,3] -> 'y': float32[2,1], 's': float32[2,3]>")
    shown = session._repr_html_()
    assert all(text in shown for text in ("<table>", "data:image/svg+xml", "2 kernel calls for", "float32[2,1]"))


def test_outputs_are_copies(session):
    first = session.run(X)
    session.run(np.zeros_like(X))
    assert right(first)


@pytest.mark.parametrize("x", [
    np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2],
    np.frombuffer(b"_" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 3), X[::-1][::-1], memoryview(X)],
    ids=["fortran", "strided", "misaligned and read-only", "reversed", "memoryview"])
def test_whatever_numpy_takes(session, x):
    assert right(session.run({"x": x}))
    assert right(dict(zip(("y", "s"), session(x), strict=True)))


@pytest.mark.parametrize("inputs, error, said", [
    ({"x": X.astype(np.float64)}, ShapeError, r"expects 'x': float32\[2,3\], and was given float64"),
    ({"x": X.astype(">f4")}, ShapeError, "was given >f4"),
    ({"x": X[:, :0]}, ShapeError, r"was given float32\[2,0\]"),
    ({"x": X.reshape(-1)}, ShapeError, r"was given float32\[6\]"),
    ({"z": X}, ShapeError, "no input 'z'; its inputs are 'x'"),
    ({"x": X, "z": X}, ShapeError, "no input 'z'"),
    ({}, ShapeError, "misses its input 'x'"),
    ([X, X], TypeError, "takes 1 inputs and was given 2; they are 'x': float32"),
    ("x", TypeError, "or one array, not str"), (None, TypeError, "or one array, not NoneType"),
    ({"x": None}, TypeError, "NoneType is no array of numbers"),
    ({"x": "text"}, TypeError, "str is no array of numbers"),
    ({"x": type("Liar", (), {"__array_struct__": 5})()}, TypeError, "Liar does not become an array"),
    ({"x": [[1, 2, 3], [4]]}, TypeError, "list does not become an array"),
    ({"x": X.astype(np.complex64)}, TypeError, "no array of numbers"),
    ({"x": X.astype(object)}, TypeError, "ndarray of object is no array of numbers")])
def test_what_is_no_input(session, inputs, error, said):
    with pytest.raises(error, match=said):
        session.run(inputs)
    assert right(session.run({"x": X}))


def test_an_input_twice(session):
    with pytest.raises(TypeError, match="several values for its input 'x'"):
        session(X, x=X)


def test_bound_arrays_are_read_and_written_where_they_lie(session):
    x = X.copy()
    bound = session.bind({"x": x})
    assert repr(bound).startswith("<bound two on ")
    results = bound()
    assert right(results) and results is bound.outputs
    x[...] = 0
    assert not bound()["s"].any() and not results["s"].any()
    assert right(session.run({"x": X})) and not results["s"].any()     # another run leaves them alone
    x[...] = X
    other = session.bind()
    assert right(bound()) and not other()["s"].any() and right(bound.outputs)
    other.inputs["x"][...] = X
    assert right(other())
    assert right(session.bind(X)()) and right(session.bind([X])())


def test_what_cannot_be_bound(session):
    for x in (np.asfortranarray(X), X.tolist()):
        with pytest.raises(ShapeError, match="cannot be bound"):
            session.bind({"x": x})
    with pytest.raises(ShapeError, match="was given float64"):
        session.bind(X.astype(np.float64))
    with pytest.raises(TypeError, match="a list of arrays, or one array, not str"):
        session.bind("x")


def test_bound_outputs_outlive_the_session(folder):
    session = tvm_megcc.load(folder)
    bound = session.bind({"x": X})
    results = bound()
    session.close()
    with pytest.raises(MegccError, match=r"two: the session is closed; tvm_megcc.load"):
        bound()
    del session, bound
    gc.collect()
    assert right(results)


def test_after_close(folder):
    with tvm_megcc.load(folder) as session:
        right(session.run(X))
    session.close()
    assert repr(session).startswith("<closed two on ")
    for use in (lambda: session.run(X), lambda: session(X), lambda: session.bind({"x": X}), session.reset,
                lambda: session.states, lambda: session.profile(X), lambda: session.trace(X)):
        with pytest.raises(MegccError, match="is closed"):
            use()


def test_copies_are_refused(session):
    for refused, what in ((copy.copy, "copied"), (copy.deepcopy, "copied"), (pickle.dumps, "pickled")):
        with pytest.raises(TypeError, match=rf"a session cannot be {what}.*tvm_megcc.load"):
            refused(session)


def test_shapes_that_change(open_folder):
    with tvm_megcc.load(open_folder) as session:
        bound = session.bind({"a": np.arange(5, dtype=np.int32), "b": np.ones(5, np.int32)})
        for n in (3, 5, 3, 64):
            a = np.arange(n, dtype=np.int32)
            np.testing.assert_array_equal(session(a, a), a + a)
            np.testing.assert_array_equal(bound()["s"], np.arange(1, 6))
        for shapes in ((0, 0), (65, 65), (3, 4)):
            with pytest.raises(ShapeError, match="was not compiled for inputs"):
                session(*(np.zeros(n, np.int32) for n in shapes))
        with pytest.raises(ShapeError, match="misses its input 'a'"):
            session.bind()


def test_threads_share_a_session_and_one_closes_it(folder):
    session, problems, begun = tvm_megcc.load(folder), [], threading.Barrier(3)

    def work(value: float) -> None:
        x = np.full((2, 3), value, np.float32)
        begun.wait()
        try:
            while True:
                right(session.run({"x": x}), x)
        except MegccError as closed:
            if "is closed" not in str(closed):
                problems.append(closed)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(value,)) for value in (1.0, 2.0)]
    for thread in threads:
        thread.start()
    begun.wait()
    for _ in range(100):
        session.run({"x": X})
    session.close()
    for thread in threads:
        thread.join()
    assert not problems


def with_another_container(folder, tmp_path, change):
    """A copy of the folder whose .megcc alone is another one."""
    other = tmp_path / "other"
    shutil.copytree(folder, other, ignore=shutil.ignore_patterns("build"))
    path = next(other.glob("*.megcc"))
    model = container.read(path.read_bytes())
    path.write_bytes(container.write(replace(model, programs=tuple(map(change, model.programs)))))
    return other


def wider_output(program):
    """The second output gets a million elements."""
    memory, place, index = program.device_models[0], len(program.extents), program.outputs[1]
    slots, tensors = list(memory.tensors), list(program.tensors)
    tensors[index] = replace(tensors[index], dims=place)
    slots[index] = container.TensorSlot(memory.arena_bytes, 4_000_000)
    return replace(program, extents=(*program.extents, 1, 1_000_000), tensors=tuple(tensors),
                   device_models=(replace(memory, tensors=tuple(slots), arena_bytes=memory.arena_bytes + 4_000_000),))


def more_outputs(program):
    memory, index = program.device_models[0], program.outputs[0]
    count = len(program.tensors)
    return replace(program, tensors=(*program.tensors, *[program.tensors[index]] * 900),
                   outputs=(*program.outputs, *range(count, count + 900)),
                   device_models=(replace(memory, tensors=(*memory.tensors, *[memory.tensors[index]] * 900)),))


@pytest.mark.parametrize("change", [wider_output, more_outputs, lambda p: replace(p, outputs=p.outputs[:1]),
                                    lambda p: replace(p, outputs=p.outputs[::-1])],
                         ids=["wider output", "more outputs", "one output less", "outputs exchanged"])
def test_a_container_that_was_replaced_alone(folder, tmp_path, change):
    with pytest.raises(MegccError):
        tvm_megcc.load(with_another_container(folder, tmp_path, change))


def test_a_manifest_that_was_replaced_alone(folder, tmp_path):
    other = with_another_container(folder, tmp_path, lambda program: program)
    manifest = json.loads((other / "manifest.json").read_text())
    manifest["models"][0]["outputs"][0]["shape"] = [2, 1000]
    (other / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(MegccError, match=r"is not the one that manifest.json describes \(it has float32\[2,1\] where"):
        tvm_megcc.load(other)


def test_a_folder_is_loaded_again_after_another_model_was_compiled_to_it(tmp_path):
    """In one process, with earlier sessions still open. Weights differ, then operators."""
    def loaded(operator, number):
        network = model([node(operator, "x k", "y")], {"x": [2, 3]}, {"y": [2, 3]},
                        {"k": np.array([number], np.float32)})
        return tvm_megcc.load(tvm_megcc.compile(network, name="same").save(tmp_path / "same"))

    sessions = {case: loaded(*case) for case in [("Mul", 2), ("Mul", 3), ("Add", 3), ("Mul", 2)]}
    for (operator, number), session in sessions.items():
        np.testing.assert_array_equal(session(X), X * number if operator == "Mul" else X + number)


def test_what_load_is_given(folder, tmp_path):
    assert tvm_megcc.load(next(folder.glob("*.megcc"))).name == "two"
    with pytest.raises(MegccError, match=r"net.onnx is a file, not a folder.*compile it first: tvm_megcc.compile\("):
        tvm_megcc.load(saved(model([], {}, {}), tmp_path / "net.onnx"))
    with pytest.raises(MegccError, match="missing does not exist"):
        tvm_megcc.load(tmp_path / "missing")
    with pytest.raises(MegccError, match="was not made by 'megcc compile'"):
        tvm_megcc.load(tmp_path)


def in_a_child(work) -> int:
    """The exit code of a forked process, that of a signal negated; it has ten seconds."""
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture(scope="module")
def threads_folder(tmp_path_factory):
    return product_and_sum(tmp_path_factory, "pool", threads=2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_forked_child_has_a_session_of_its_own(folder, threads_folder, threads):
    session = tvm_megcc.load(folder if threads == 1 else threads_folder)
    bound = session.bind({"x": X})
    bound()

    def work():
        assert right(session.run(X)) and right(bound())
        session.close()

    assert in_a_child(work) == 0
    assert right(session.run(X)) and right(bound())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_forked_during_a_run_says_so(folder):
    session = tvm_megcc.load(folder)

    def work():
        with pytest.raises(MegccError, match="was running in another thread when this process was forked"):
            session.run(X)
        session.close()

    with session._lock:         # as a thread holds it during a run
        code = in_a_child(work)
    assert code == 0 and right(session.run(X))


def test_portable_c_is_taken_where_it_is_asked_for(tmp_path):
    """Of a folder that has better for this CPU, which is taken otherwise."""
    folder = tvm_megcc.compile(paths.examples() / "digits.onnx", "native,c").save(tmp_path / "digits")
    assert tvm_megcc.load(folder, "c").target.name == "c" == local_session(folder, "c").target.name
    assert tvm_megcc.load(folder).target == native() == local_session(folder).target
