# SPDX-License-Identifier: Apache-2.0
"""`megcc run`: runs a model on given or seeded random inputs, and shows shapes, largest values and times."""

from __future__ import annotations

import json
import statistics
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import numpy as np

from ..errors import MegccError, ShapeError, refused_by_system, shortened
from ..ir.dim_text import parse_dim
from ..ir.dims import Symbol, substitute
from ..ir.graph import Attrs, Graph, Op
from ..ir.types import TensorType
from ..passes.canonicalize.preprocess import Input, convert_inputs
from ..runtime import reference
from ..runtime.device import DeviceSession
from ..runtime.program import ProgramSession
from ..runtime.session import Port
from ..runtime.wasm.engine import WebSession
from . import layers

#: Sessions that measure times where the model runs.
TIMED = (DeviceSession, WebSession)
#: A part of the names that exporters give to inputs that are masks.
_MASK = "mask"
#: Parts of error messages of runs that refuse random inputs (c_runtime/src/status.c, runtime/session.py).
_REFUSED = ("a kernel refused the values of its operands", "the run found a value of", "chooses the branch")


def run(session, inputs: str | Mapping[str, np.ndarray] | None = None, outputs: str | None = None, repeat: int = 10,
        seed: int = 0, profile: bool = False, shapes: Mapping[str, Sequence[int]] | None = None,
        sequence: bool = False, real: bool = False) -> dict:
    """Runs a session and reports.

    Args:
        inputs, outputs: .npz files with arrays by tensor name; inputs may also be the arrays.
        repeat: further runs, timed; an emulator is not timed.
        seed: of random inputs, if `inputs` are not given.
        profile: whether the seconds of each call are reported, too.
        shapes: of seeded inputs whose shape may change.
        sequence: the arrays of `inputs` have the steps of a stream along a first axis of their own, and so have those
            of `outputs`; the times are those of the steps.
        real: inputs and outputs that the model quantises are given and returned as float32 (`Session.run_float`).
    """
    feeds = inputs_of(session.inputs, inputs, seed, shapes or {})
    if real:
        feeds = {port.name: np.asarray(port.quantize(feeds[port.name])) for port in session.inputs}
    steps = split(feeds, inputs) if sequence else [feeds]
    with asking_for_inputs(session.inputs, inputs):
        times, results = timed_steps(session, steps)
    if not sequence:
        results = {name: values[0] for name, values in results.items()}
    if real:
        results = {port.name: port.dequantize(results[port.name]) for port in session.outputs}
    if outputs:
        write_npz(outputs, results)
    shown = session.with_strings(results) if isinstance(session, ProgramSession) else results
    source = f"seed {seed}" if inputs is None else inputs if isinstance(inputs, str) else "arrays"
    report = {
        "model": session.name, "target": str(session.target), "emulated": session.emulated,
        **({"where": session.where} if isinstance(session, TIMED) else {}),
        "inputs": [{"name": port.name, "dtype": port.dtype,
                    "shape": list(feeds[port.name].shape), "source": source}
                   for port in session.inputs],
        "outputs": [describe(name, value) for name, value in shown.items()],
    }
    if getattr(session, "stack_bytes", None) is not None:
        report["stack_bytes"] = session.stack_bytes
    if not session.emulated:
        if not sequence:  # the steps of a sequence have their times already
            if isinstance(session, TIMED):
                times = session.times(feeds, max(repeat, 1), 0).seconds
            else:
                times, _ = timed_steps(session, steps * max(repeat, 1))
        report["seconds"] = {"best": min(times), "median": statistics.median(times), "runs": len(times)}
    if profile:
        report["profile"] = session.profile(steps[-1])
    return report


def split(feeds: Mapping[str, np.ndarray], source: str | Mapping[str, np.ndarray] | None
          ) -> list[dict[str, np.ndarray]]:
    """Returns the steps of a stream from arrays that have them along their first axis. source: where the arrays are
    from, for messages; None: random inputs, which are no stream."""
    if source is None:
        raise MegccError("--sequence runs the steps of a stream: give them with --inputs")
    counts = {name: len(array) if array.ndim else 0 for name, array in feeds.items()}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        found = ", ".join(f"'{name}' {count}" for name, count in counts.items())
        where = source if isinstance(source, str) else "arrays"
        raise MegccError(f"{where}: every array of a sequence has its steps along the first axis, but there are "
                         f"{found}")
    return [{name: array[step] for name, array in feeds.items()} for step in range(min(counts.values()))]


def timed_steps(session, steps: Sequence[Mapping[str, np.ndarray]]) -> tuple[list[float], dict[str, np.ndarray]]:
    """Runs the steps of a stream. Returns the seconds of each, and the outputs stacked along a new first axis."""
    times, results = [], []
    for feeds in steps:
        begin = time.perf_counter()
        results.append(session.run(feeds))
        times.append(time.perf_counter() - begin)
    return times, {name: np.stack([result[name] for result in results]) for name in results[0]}


def describe(name: str, value: np.ndarray) -> dict:
    """Returns the shape of an output and its five largest values; for strings, its first five."""
    flat = value.reshape(-1)
    if value.dtype == object:
        return {"name": name, "dtype": "text", "shape": list(value.shape), "texts": flat[:5].tolist()}
    top = np.argsort(-flat.astype(np.float64), kind="stable")[:5]
    return {"name": name, "dtype": str(value.dtype), "shape": list(value.shape),
            "top": [[int(i), flat[i].item()] for i in top]}


def text(report: dict) -> str:
    where = f", {report['where']}" if "where" in report else ""
    lines = [f"{report['model']} on {report['target']}{' (emulated)' if report['emulated'] else ''}{where}"]
    for port in report["inputs"]:
        lines.append(f"  in   {_port(port)}  from {port['source']}")
    for port in report["outputs"]:
        if "texts" in port:
            summary = ", ".join(json.dumps(shortened(string, 60)) for string in port["texts"])
        else:
            summary = "top 5: " + ", ".join(f"[{_numpy_index(index, port['shape'])}] {value:.6g}"
                                         for index, value in port["top"])
        lines.append(f"  out  {_port(port)}  {summary}")
    if "stack_bytes" in report:
        lines.append(f"  deepest stack {report['stack_bytes']:,} bytes")
    if "seconds" in report:
        seconds = report["seconds"]
        lines.append(f"  time {seconds['best'] * 1e3:.3f} ms (best of {seconds['runs']}; "
                     f"median {seconds['median'] * 1e3:.3f} ms)")
    if "profile" in report:
        calls = report["profile"]
        lines += layers.text(layers.layers(calls, [call["seconds"] for call in calls]))
    return "\n".join(lines) + "\n"


def _numpy_index(index: int, shape: Sequence[int]) -> str:
    """Returns the index of an element as numpy writes it; only that of one axis if the others have extent 1."""
    return ",".join(map(str, np.unravel_index(index, shape))) if sum(dim > 1 for dim in shape) > 1 else str(index)


def _port(port: Mapping) -> str:
    return f"{port['name']}  {port['dtype']}[{','.join(map(str, port['shape']))}]"


def inputs_of(ports: Sequence[Port], source: str | Path | Mapping[str, np.ndarray] | None, seed: int = 0,
              shapes: Mapping[str, Sequence[int] | int] = MappingProxyType({})) -> dict[str, np.ndarray]:
    """Returns the inputs of a run by name: those of a .npz file or of a mapping, else random ones (`seeded`).

    Raises:
        MegccError: as `read_npz` and `shapes_of`.
    """
    return read_npz(source, [port.name for port in ports]) if source else seeded(ports, seed, shapes)


def network_input(name: str, array: np.ndarray, given: Input, dtype: str) -> np.ndarray:
    """Converts an input from the form that `--input` describes to the network's own, by the numpy reference.

    given: with the network's layout (`preprocess.with_network`). dtype: of the network's input.
    """
    type_ = TensorType(dtype, given.network_shape(array.shape))
    # A graph of one copy: its converted input is the network's input.
    copy = Op("copy", Attrs(), (name,), ("result",))
    graph = Graph(name, (name,), ("result",), (copy,), {name: type_, "result": type_}, {})
    return reference.run(convert_inputs(graph, {name: given}), {name: array})["result"]


def seeded(ports, seed: int = 0, shapes: Mapping[str, Sequence[int] | int] = MappingProxyType({})
           ) -> dict[str, np.ndarray]:
    """Returns random inputs for a model, by name: valid indices if a range of integers is known, 0 and 1 for masks,
    else normally distributed floats, 8-bit integers (quantised, pixels) over their whole range, other integers in [0,
    10).

    shapes: of inputs whose shape may change, or sizes of dimensions by name.
    """
    rng = np.random.default_rng(seed)
    feeds = {}
    for port, shape in zip(ports, shapes_of(ports, shapes), strict=True):
        dtype = np.dtype(port.dtype)
        if (port.mask or _MASK in port.name.lower()) and shape:
            feeds[port.name] = random_mask(rng, shape).astype(dtype)
        elif port.range is not None:
            feeds[port.name] = rng.integers(*port.range, shape, endpoint=True).astype(dtype)
        elif dtype.kind == "f":
            feeds[port.name] = rng.standard_normal(shape).astype(dtype)
        elif dtype.kind in "iu" and dtype.itemsize == 1:
            limits = np.iinfo(dtype)
            feeds[port.name] = np.asarray(rng.integers(limits.min, limits.max, shape, dtype, endpoint=True))
        else:
            feeds[port.name] = rng.integers(0, 2 if dtype.kind == "b" else 10, shape).astype(dtype)
    return feeds


def shapes_of(ports: Sequence[Port], given: Mapping[str, Sequence[int] | int]) -> list[tuple[int, ...]]:
    """Returns the shapes of the inputs of a run. given: shape by input, or size by name of a dimension. A dimension
    that a shape determines has that size in all inputs.

    Raises:
        ShapeError: for a name that is neither an input nor a dimension, and for dimensions that are not known.
    """
    inputs = {port.name: port for port in ports}
    shapes = {name: tuple(size) for name, size in given.items() if not isinstance(size, int)}
    sizes = {dim: extent for name, shape in shapes.items() if name in inputs
             for dim, extent in zip(inputs[name].shape, shape, strict=False) if isinstance(dim, str)}
    sizes |= {name: size for name, size in given.items() if isinstance(size, int)}
    open_ = dict.fromkeys(dim for port in ports for dim in port.shape if isinstance(dim, str))
    for name in given:
        if name not in (inputs if name in shapes else open_):
            dims = f", and their dimensions {', '.join(open_)}" if open_ else ""
            raise ShapeError(f"a shape is given for '{name}'; the inputs are {', '.join(map(str, ports))}{dims}")
    found = [shapes.get(port.name, tuple(_extent(dim, sizes) for dim in port.shape)) for port in ports]
    unknown = list(dict.fromkeys(dim for shape in found for dim in shape if isinstance(dim, str)))
    if unknown:
        first = next(port for port, shape in zip(ports, found, strict=True) if unknown[0] in shape)
        # Extents such as "2*n" follow from the others.
        names = [dim for dim in unknown if parse_dim(dim, unknown) in (None, Symbol(dim))]
        least = {dim: low for port in ports for dim, low in zip(port.shape, port.least or (), strict=False)}
        sizes = ";".join(f"{name}={least.get(name, 1)}" for name in names)
        raise ShapeError(f"input {first} has no fixed shape: say what {', '.join(names)} is in this run, such as "
                         f'--shape "{sizes}", or give the inputs themselves, with --inputs')
    return found  # type: ignore[return-value]


def _extent(dim: int | str, sizes: Mapping[str, int]) -> int | str:
    """Returns the value of an extent of a run: a number, a dimension, or an expression of dimensions; if it is not
    known, the extent itself."""
    if isinstance(dim, int) or dim in sizes:
        return dim if isinstance(dim, int) else sizes[dim]
    value = parse_dim(dim, sizes)
    value = None if value is None else substitute(value, sizes)
    return value if isinstance(value, int) else dim


def random_mask(rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    """Returns a random mask of 0 and 1 whose rows begin with 1, since a softmax over no elements is NaN, also for the
    first query of a causal one."""
    mask = rng.integers(0, 2, shape)
    mask[..., :1] = 1
    return mask


def with_values(feeds: Mapping[str, np.ndarray], values: Mapping[str, object]) -> dict[str, np.ndarray]:
    """Replaces some inputs by these numbers: one for all elements, or all of them in row-major order.

    Raises:
        MegccError: for a name that is not an input.
        ShapeError: for a wrong number of values, or values that the dtype cannot represent.
    """
    result = dict(feeds)
    for name, value in values.items():
        if name not in feeds:
            raise MegccError(f"a value is given for '{name}'; the inputs are {', '.join(feeds)}")
        like, given = feeds[name], np.asarray(value)
        if given.size not in (1, like.size):
            raise ShapeError(f"input '{name}' has {like.size} elements, {given.size} values are given")
        array = given.astype(like.dtype)
        if like.dtype.kind in "biu" and not np.array_equal(array, given):
            raise ShapeError(f"input '{name}' is {like.dtype}, which cannot hold {value}")
        result[name] = np.full(like.shape, array) if given.size == 1 else array.reshape(like.shape)
    return result


@contextmanager
def asking_for_inputs(ports: Sequence[Port], inputs: object) -> Iterator[None]:
    """Explains errors of a run on random inputs within the block, unless `inputs` are given.

    Raises:
        MegccError: if a kernel refuses random values, naming the inputs that must be given.
    """
    try:
        yield
    except MegccError as error:
        if inputs or not any(text in str(error) for text in _REFUSED):
            raise
        integers = [port for port in ports if np.dtype(port.dtype).kind in "iu"] or ports
        raise MegccError(f"{error}\n  The inputs were random numbers, and some are not valid for the model. Give "
                         f"valid values of {', '.join(map(str, integers))} with --inputs FILE.npz: arrays by name, "
                         "saved by numpy.savez") from None


def read_npz(path: str | Path | Mapping[str, np.ndarray], names: Sequence[str],
             prefix: str = "in:") -> dict[str, np.ndarray]:
    """Returns arrays by name from a .npz file or a mapping, in which names may have the prefix.

    Raises:
        MegccError: if the file cannot be read or lacks one of the names.
    """
    try:
        if isinstance(path, Mapping):
            path, arrays = "arrays", {name: np.asarray(value) for name, value in path.items()}
        else:
            file = np.load(path)
            if isinstance(file, np.ndarray):
                raise MegccError(f"{path} is one array without a name: save it with numpy.savez('in.npz', "
                                 f"**{{{', '.join(f'{name!r}: array' for name in names)}}})")
            with file:
                arrays = {}
                for name in file.files:
                    try:
                        arrays[name] = file[name]
                    except ValueError as error:
                        if "allow_pickle" not in str(error):
                            raise
                        raise MegccError(f"{path}: '{name}' is an array of Python objects; save one of numbers, or of "
                                         "strings, such as array.astype(str)") from None
    except OSError as error:
        raise refused_by_system(error, f"{path} cannot be read") from None
    except MegccError:
        raise
    except Exception:  # zipfile.BadZipFile, zlib.error and others: numpy lets them through
        raise MegccError(f"{path} is damaged, or no .npz file of arrays; write it with numpy.savez") from None
    found = {name: arrays.get(name, arrays.get(prefix + name)) for name in names}
    missing = [name for name, value in found.items() if value is None]
    if missing:
        unnamed = arrays and all(name.startswith("arr_") for name in arrays)
        raise MegccError(f"{path} has no '{', '.join(missing)}'; it has {', '.join(arrays) or 'nothing'}"
                         + (f": numpy.savez('in.npz', **{{{missing[0]!r}: array}}) gives an array its name" if unnamed
                            else ". Names are those of the model, its capitals too" if
                            missing[0].lower() in map(str.lower, arrays) else ""))
    return found


def write_npz(path: str | Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays like numpy.savez, in which some names are impossible because they are its parameters."""
    if Path(path).is_dir():
        raise MegccError(f"{path} is a folder; give the file to write, such as {Path(path) / 'out.npz'}")
    path = str(path) if str(path).endswith(".npz") else f"{path}.npz"
    try:
        with zipfile.ZipFile(path, "w") as file:
            for name, array in arrays.items():
                array = np.asanyarray(array)
                array = array.astype(str) if array.dtype == object else array
                with file.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)
    except OSError as error:
        raise refused_by_system(error, f"{path} cannot be written") from None
