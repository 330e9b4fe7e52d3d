# SPDX-License-Identifier: Apache-2.0
"""Sessions: the interface of Python to a compiled model. `native.py` runs the model in this process, `emulator/run.py`
in an emulator, `device.py` on a board."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn, Union, overload

import numpy as np
import numpy.typing as npt

from .. import notebook
from ..codegen.manifest import read_manifest
from ..codegen.quantised import Quantisation
from ..deprecated import with_old_attributes
from ..errors import MegccError, ShapeError
from ..ir.graph import CacheInput
from .build import Build, model_of
from .strings import StringTable

if TYPE_CHECKING:
    from .native import Bound

Array = npt.NDArray[Any]
Arrays = Mapping[str, npt.ArrayLike]
#: The inputs of a run: arrays by name, arrays in the model's order, or the one array of a model with one input.
Given = Union[Arrays, Sequence[npt.ArrayLike], Array]
#: dtype -> ONNX's name of the element type, where it is another one.
_ONNX_NAMES = {"float32": "float", "float64": "double"}
#: The largest number of buckets that an error message lists.
_LISTED_BUCKETS = 8


@with_old_attributes
@dataclass(frozen=True)
class Port:
    """An input or output of a model.

    name: its name in the model.
    dtype: its element type, as numpy names it.
    shape: its extents; a string is the name of an extent that changes from call to call.
    range: the least and the largest valid value of an input, such as the ids of a vocabulary, if the model has them.
    quant: scale and zero point, if it is quantised.
    counted: the shape of the output is data-dependent: known only after a run, and it may differ from run to run.
    strings: the model's table of strings, if it is a string tensor.
    cache_input: for an input that grows with a KV cache: the part of it that a run reads.
    mask: the input is known to be an attention mask of 1 and 0.
    least: the smallest shape of an input whose shape changes.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    range: tuple[int, int] | None = None
    quant: Quantisation | None = None
    counted: bool = False
    strings: StringTable | None = field(default=None, repr=False, compare=False)
    cache_input: CacheInput | None = None
    mask: bool = False
    least: tuple[int, ...] | None = field(default=None, repr=False, compare=False)

    @staticmethod
    def of(row: Mapping[str, Any], strings: StringTable | None = None) -> Port:
        """Reads a port from the manifest's row."""
        is_string = strings is not None and row.get("text", False)
        value_range = (0, len(strings.known) - 1) if is_string and strings.known else row.get("range")
        return Port(row["name"], row["dtype"], tuple(row["shape"]),
                    range=None if value_range is None else (value_range[0], value_range[1]),
                    quant=Quantisation(row["quant"]["scale"], row["quant"]["zero_point"]) if "quant" in row else None,
                    counted=row.get("counted", False), strings=strings if is_string else None,
                    cache_input=CacheInput(**row["filled"]) if "filled" in row else None,
                    mask=row.get("mask") is True, least=tuple(row["least"]) if "least" in row else None)

    @property
    def type(self) -> str:
        """The type as ONNX Runtime writes it, such as `tensor(float)`."""
        return f"tensor({'string' if self.strings else _ONNX_NAMES.get(self.dtype, self.dtype)})"

    def takes(self, array: Array) -> bool:
        """Returns whether this input accepts the array's dtype and shape, whatever the other inputs are."""
        return (array.dtype == np.dtype(self.dtype) and array.ndim == len(self.shape)
                and all(isinstance(dim, str) or dim == extent
                        for dim, extent in zip(self.shape, array.shape, strict=True)))

    def takes_part(self, array: Array) -> bool:
        """Returns whether the array may be the first elements of this input, which grows with a KV cache."""
        assert self.cache_input is not None
        part = [*self.shape]
        part[self.cache_input.axis] = ""
        return replace(self, shape=tuple(part)).takes(array) and array.shape[self.cache_input.axis] <= \
            self.shape[self.cache_input.axis]

    def array(self, value: npt.ArrayLike) -> Array:
        """Returns the value as an aligned, contiguous array; copies only if necessary.

        Numbers, lists and tables have no dtype: they get the port's, unless that loses information.

        Raises:
            TypeError: for a value that does not become an array of numbers.
        """
        try:
            array = np.asarray(value)
            is_table = hasattr(value, "iloc")   # a DataFrame or Series of pandas, which need not be installed
            if isinstance(value, (bool, int, float, list, tuple)) or is_table:
                array = array.astype(np.dtype(self.dtype), casting="same_kind")
        except Exception as error:      # whatever the __array__ of a foreign class raises
            raise TypeError(f"input {self}: {type(value).__name__} does not become an array: {error}") from None
        if array.dtype.kind not in "fiub" and array.dtype != np.dtype(self.dtype):
            of = f" of {array.dtype}" if array.ndim else ""
            raise TypeError(f"input {self}: {type(value).__name__}{of} is no array of numbers")
        return np.require(array, requirements=["C_CONTIGUOUS", "ALIGNED"])

    def quantize(self, value: npt.ArrayLike) -> npt.ArrayLike:
        """Returns quantized floats, if this input is quantised; any other value unchanged."""
        return self.quant.quantize(value, self.dtype) if self.quant and np.asarray(value).dtype.kind == "f" else value

    def dequantize(self, array: Array) -> Array:
        """Returns integers dequantized to float32, if this output is quantised; else the array unchanged."""
        return self.quant.dequantize(array) if self.quant else array

    def __str__(self) -> str:
        return f"'{self.name}': {'strings' if self.strings else self.dtype}[{','.join(map(str, self.shape))}]"


@with_old_attributes
class Session:
    """A compiled model that is ready to run.

    inputs, outputs: the ports of `run`, without states.
    calls: the kernel calls of one run, in order, each {kernel, kind, origin, output, macs}, from the manifest.
    state_ports: inputs that the session keeps from run to run; their initial values are the model's, or zero.
    state_of: output -> the state that it becomes after a run.

    A session is called like a function, or is a context that closes it:

        with tvm_megcc.load("mnist_megcc") as session:
            logits = session(image)
    """

    emulated = False

    def __init__(self, built: Build):
        self.folder, self.target = built.folder, built.target
        model = model_of(read_manifest(built.folder), built.model or None, built.folder)
        self.name: str = model["name"]
        self._facts: dict[str, Any] = model
        strings = StringTable(model["texts"]) if "texts" in model else None
        self._all_inputs = tuple(Port.of(row, strings) for row in model["inputs"])
        self._all_outputs = tuple(Port.of(row, strings) for row in model["outputs"])
        self._others: dict[str, int] = {}   # strings of the last run that are not in the model's table -> codes
        self.state_of: dict[str, str] = {row["output"]: row["input"] for row in model["states"]}
        #: State -> its initial elements; the others begin as zeros.
        self._initial: dict[str, list[Any]] = {
            row["input"]: row["begins"] for row in model["states"] if "begins" in row}
        states = frozenset(self.state_of.values())
        self.state_ports = tuple(port for port in self._all_inputs if port.name in states)
        self.inputs = tuple(port for port in self._all_inputs if port.name not in states)
        self.outputs = tuple(port for port in self._all_outputs if port.name not in self.state_of)
        #: States that hold the number of rows of other states, which stay when the next run has other shapes.
        self.counters: tuple[str, ...] = tuple(model.get("counters", ()))
        self._strings = {port.name: port.strings for port in self.outputs if port.strings}
        self.buckets: list[dict[str, list[int | None]]] = model["buckets"]
        self.programs: list[dict[str, Any]] = model["programs"]

    def get_inputs(self) -> tuple[Port, ...]:
        """Returns the inputs of a run, in the model's order: name, dtype, shape, and type as ONNX Runtime writes it."""
        return self.inputs

    def get_outputs(self) -> tuple[Port, ...]:
        """Returns the outputs of a run, in the model's order, described as the inputs."""
        return self.outputs

    @property
    def program(self) -> dict[str, Any]:
        """The manifest's facts about the program that runs."""
        return next(p for p in self.programs if p["target"] == self.target.name)

    @property
    def calls(self) -> list[dict[str, Any]]:
        return self.program["calls"]  # type: ignore[no-any-return]

    @overload
    def run(self, inputs: Given) -> dict[str, Array]: ...

    @overload
    def run(self, inputs: Sequence[str] | None, feeds: Arrays, run_options: object = None) -> list[Array]: ...

    def run(self, inputs: Any, feeds: Arrays | None = None, run_options: object = None) -> Any:
        """Runs the model on arrays by input name and returns copies of the outputs by name.

        Args:
            inputs: a mapping from names to arrays; or a list or tuple of arrays in the order of `inputs`; or the array
                of a model with one input; or a table of pandas, whose columns are the inputs, or which is the only
                input. Arrays are any values that numpy converts to one. Strings are str, or bytes of UTF-8; results
                with strings are arrays of str objects.
            feeds: arrays by name, as ONNX Runtime takes them. Then `inputs` are names of outputs, or None for all, and
                the result is a list of these outputs.
            run_options: an argument of ONNX Runtime, which is ignored.

        Raises:
            ShapeError: for a wrong name, shape or dtype; the message has the expected one.
            TypeError: for a value that is no array, and for a wrong number of arrays.
            MegccError: if the run fails, with the runtime's message, and if the session is closed.
        """
        raise NotImplementedError

    def _in_order(self, names: Sequence[str] | None, feeds: Arrays) -> list[Array]:
        """Runs the model with ONNX Runtime's arguments. Returns the outputs with these names; None: all, in the model's
        order."""
        outputs = [port.name for port in self.outputs]
        requested = outputs if names is None else [names] if isinstance(names, str) else list(names)
        unknown = next((name for name in requested if name not in outputs), None)
        if unknown is not None:
            raise ShapeError(f"{self.name} has no output '{unknown}'; its outputs are {', '.join(outputs)}")
        results = self.run(feeds)
        return [results[name] for name in requested]

    def run_float(self, inputs: Given) -> dict[str, Array]:
        """Runs the model on floats: quantizes the inputs and dequantizes the outputs to float32.

        Args:
            inputs: as `run` takes them. Integers, and inputs and outputs that are not quantised, stay as they are.

        Raises: as `run`.
        """
        named, ports = self._named_inputs(inputs), {port.name: port for port in self.inputs}
        results = self.run({name: ports[name].quantize(value) if name in ports else value
                            for name, value in named.items()})
        outputs = {port.name: port for port in self.outputs}
        return {name: outputs[name].dequantize(array) for name, array in results.items()}

    def __call__(self, *arrays: npt.ArrayLike, **named: npt.ArrayLike) -> Array | tuple[Array, ...]:
        """Runs the model on inputs in their order or by name. Returns the output, or a tuple of several.

        Raises: as `run`.
        """
        given = self._by_name(arrays)
        twice = next((name for name in named if name in given), None)
        if twice is not None:
            raise TypeError(f"{self.name}() got several values for its input '{twice}'")
        results = tuple(self.run({**given, **named}).values())
        return results[0] if len(results) == 1 else results

    def bind(self, inputs: Given | None = None) -> Bound:
        """Returns a function that runs on the same arrays again and again: the shortest way from Python to a result.

        Args:
            inputs: arrays by name, or as `run` takes them. Each call reads them again, without a copy: write the next
                input into them. Inputs of known shape that a dictionary does not have get arrays of zeros.

        Raises:
            ShapeError, TypeError: as `run`; ShapeError also for an array that is not contiguous, aligned and of the
                machine's byte order.
            MegccError: for code that does not run in this process, such as an emulator's.
        """
        raise MegccError(f"arrays can only be bound where the code runs in this process, not for {self.target}")

    def reset(self, states: Arrays | None = None) -> None:
        """Sets all states to their initial values, except those in `states`.

        Args:
            states: values by the names of states.

        Raises:
            ShapeError: for a name that is not a state, or a value of another type.
            TypeError: for a value of `states` that is no dictionary.
        """
        raise NotImplementedError

    @property
    def states(self) -> dict[str, Array]:
        """Returns copies of the current states, by the names of their inputs."""
        raise NotImplementedError

    def profile(self, inputs: Given) -> list[dict[str, Any]]:
        """Runs once and times each kernel call. Returns the rows of `calls`, plus `seconds`.

        Args:
            inputs: as `run` takes them.

        Raises:
            MegccError: for code that does not run in this process, such as an emulator's.
        """
        raise MegccError(f"there is no profile of {self.target} in an emulator: it would not be that of the CPU")

    def trace(self, inputs: Given) -> list[bytes | None]:
        """Runs once and returns the first result of each of `calls`, as bytes in the call's layout. For a call in a
        loop it is the result of the last iteration; for a call that did not run, such as one in a branch that was not
        taken, it is None.

        Args:
            inputs: as `run` takes them.

        Raises:
            MegccError: for code that does not run in this process, such as an emulator's.
        """
        raise MegccError(f"calls can only be watched where the code runs in this process, not for {self.target}")

    def close(self) -> None:
        """Releases memory and threads. A run after it is an error; closing again does nothing."""

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __copy__(self) -> NoReturn:
        self._refuse("copied")

    def __deepcopy__(self, memo: object) -> NoReturn:
        self._refuse("copied")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        self._refuse("pickled")

    def _refuse(self, what: str) -> NoReturn:
        raise TypeError(f"a session cannot be {what}: it owns memory and threads of this process; another one on the "
                        f"same model, in this or another process, is tvm_megcc.load({str(self.folder)!r})")

    def _explained(self, message: str) -> str:
        """Returns the message of a failed run with an explanation of "instruction N": the operator of the model, or the
        data-dependent extent that is out of bounds."""
        found = re.search(r"instruction (\d+)", message)
        call = next((c for c in self.calls if found and c["instruction"] == int(found[1])), None)
        count = next((c for c in self.program.get("counts", ()) if found and c["instruction"] == int(found[1])), None)
        if count is not None:
            if count.get("branch"):
                return (f"{message}: the {count['name']} chooses the branch that was removed at compilation, because "
                        "it is impossible for the shapes of the inputs; give inputs that choose the other branch, or "
                        "compile for the shapes of this one with --input-shapes")
            if count["name"] in self.counters:
                return (f"{message}: the KV cache is full: call reset() to begin anew, or compile the model with a "
                        f"larger capacity, --bound '{count['name']}=N'")
            return f"{message}: the run found a value of '{count['name']}' that is out of its bounds"
        return message if call is None else f"{message}: {call['kind']} from {call['origin'] or call['output']}"

    def _by_name(self, arrays: Sequence[npt.ArrayLike]) -> dict[str, npt.ArrayLike]:
        """Returns positional arrays by the names of their inputs."""
        if len(arrays) > len(self.inputs):
            raise TypeError(f"{self.name} takes {len(self.inputs)} inputs and was given {len(arrays)}; they are "
                            f"{', '.join(map(str, self.inputs))}")
        return {port.name: array for port, array in zip(self.inputs, arrays, strict=False)}

    def _named_inputs(self, inputs: Given) -> Arrays:
        """Returns the inputs of a run by name. Raises ShapeError or TypeError if they cannot be assigned to names."""
        if isinstance(inputs, Mapping):
            return inputs
        if isinstance(inputs, (list, tuple)):
            return self._by_name(inputs)
        columns = {str(name) for name in getattr(inputs, "columns", ())}    # a table
        if columns and all(port.name in columns for port in self.inputs):
            return {port.name: _column(inputs[port.name], port) for port in self.inputs}
        if columns and len(self.inputs) > 1:
            missing = next(port for port in self.inputs if port.name not in columns)
            raise ShapeError(f"{self.name} reads its inputs from columns of the table, which has no column "
                             f"'{missing.name}'; its inputs are {', '.join(map(str, self.inputs))}")
        if hasattr(inputs, "__array__") or isinstance(inputs, (int, float)):
            return self._by_name([inputs])
        raise TypeError(f"{self.name} requires a dictionary from names to arrays, a list of arrays, or one array, not "
                        f"{type(inputs).__name__}; its inputs are {', '.join(map(str, self.inputs))}")

    def _checked(self, inputs: Given) -> list[Array]:
        """Returns the inputs in the model's order as contiguous arrays that the C code can read. Raises ShapeError or
        TypeError for invalid inputs."""
        inputs = self._named_inputs(inputs)
        expected = ", ".join(map(str, self.inputs))
        for port in self.state_ports:
            if port.name in inputs:
                raise ShapeError(f"'{port.name}' is a state of {self.name}, which the session keeps; its inputs are "
                                 f"{expected}, and reset() sets states")
        unknown = [name for name in inputs if name not in {port.name for port in self.inputs}]
        if unknown:
            raise ShapeError(f"{self.name} has no input '{unknown[0]}'; its inputs are {expected}")
        arrays = []
        self._others = {}
        for port in self.inputs:
            if port.name not in inputs:
                raise ShapeError(f"{self.name} misses its input {port}")
            value = inputs[port.name]
            if port.strings and StringTable.are(value):
                try:
                    value = port.strings.codes(value, self._others)
                except TypeError as error:
                    raise TypeError(f"input {port}: {error}") from None
            array = port.array(value)
            if not (port.takes(array) or (port.cache_input and port.takes_part(array))):
                advice = "; run_float takes floats" if port.quant and array.dtype.kind == "f" else ""
                if port.cache_input:
                    past = port.cache_input.past
                    advice = f"; '{past}' is {self._rows(past)}; new ones come after them"
                raise ShapeError(f"{self.name} expects {port}, and was given {_type(array)}{advice}")
            arrays.append(array)
        return [self._padded(port, array, arrays) for port, array in zip(self.inputs, arrays, strict=True)]

    def _padded(self, port: Port, array: Array, arrays: Sequence[Array]) -> Array:
        """Returns an input that grows with a KV cache, padded to its full extent with zeros that are not read."""
        if port.cache_input is None or port.takes(array):
            return array
        rows = port.cache_input
        new, past = rows.new, self._rows(rows.past)
        if isinstance(new, str):
            new = next(given.shape[other.shape.index(new)] for other, given in zip(self.inputs, arrays, strict=True)
                       if new in other.shape)
        if array.shape[rows.axis] != past + new:
            raise ShapeError(f"{self.name} expects {past + new} elements along axis {rows.axis} of {port}: "
                             f"'{rows.past}' is {past}, and {new} are new; it was given {list(array.shape)}")
        result: Array = np.zeros(port.shape, array.dtype)  # type: ignore[arg-type]
        result[tuple(map(slice, array.shape))] = array
        return result

    def _rows(self, counter: str) -> int:
        """Returns the number of rows in use of a KV cache. counter: the state that holds it."""
        return int(self.states[counter][0])

    def _with_strings(self, results: dict[str, Array]) -> dict[str, Array]:
        """Returns the results of a run with indices replaced by strings."""
        for name, strings in self._strings.items():
            results[name] = strings.strings(results[name], self._others)
        return results

    def _checked_states(self, states: Arrays | None) -> dict[str, Array]:
        """Returns the values of all states: those in `states`, and the initial values of the others."""
        if states is not None and not isinstance(states, Mapping):
            raise TypeError(f"the states of {self.name} have to be a dictionary from names of their inputs to arrays, "
                            f"not {type(states).__name__}")
        ports = {port.name: port for port in self.state_ports}
        values: dict[str, Array] = {name: np.zeros(port.shape, np.dtype(port.dtype))  # type: ignore[arg-type]
                                    for name, port in ports.items()}
        for name, elements in self._initial.items():
            values[name].reshape(-1)[...] = elements
        for name, value in (states or {}).items():
            if name not in ports:
                have = ", ".join(map(str, ports.values())) or "none"
                raise ShapeError(f"{self.name} has no state '{name}'; it has {have}")
            values[name] = ports[name].array(value)
            if not ports[name].takes(values[name]):
                raise ShapeError(f"{self.name} expects the state {ports[name]}, and was given {_type(values[name])}")
            lower, upper = ports[name].range or (0, np.inf)
            if name in self.counters and not ((lower <= values[name]) & (values[name] <= upper)).all():
                raise ShapeError(f"the state '{name}' of {self.name} is a number of rows from {lower} to {upper}, "
                                 f"not {values[name].reshape(-1)[0]}")
        return values

    @property
    def is_dynamic(self) -> bool:
        """Whether shapes of inputs may change from call to call."""
        return any(isinstance(dim, str) for port in self.inputs for dim in port.shape)

    def _shape_error(self, arrays: Sequence[Array], reason: str) -> ShapeError:
        given = ", ".join(f"'{port.name}' {list(array.shape)}"
                          for port, array in zip(self.inputs, arrays, strict=True))
        ranges = "; ".join(", ".join(_range_text(name, *bounds) for name, bounds in bucket.items())
                           for bucket in self.buckets[:_LISTED_BUCKETS])
        more = len(self.buckets) - _LISTED_BUCKETS
        others = f"; and {more} more" if more > 0 else ""
        return ShapeError(f"{self.name} was not compiled for inputs {given}. It takes "
                          f"{', '.join(map(str, self.inputs))} with {ranges}{others} ({reason})")

    def _other_container(self, found: str) -> MegccError:
        """Returns the error for a container that is not the manifest's. found: the difference."""
        return MegccError(f"{self.folder}: the model is not the one that manifest.json describes ({found}); only parts "
                          "of the folder were replaced: compile it again")

    def __repr__(self) -> str:
        return (f"<{self.name} on {self.target}: {', '.join(map(str, self.inputs))} -> "
                f"{', '.join(map(str, self.outputs))}>")

    def _repr_html_(self) -> str:
        pictures = [self.folder / "memory.svg", self.folder / f"{self.name}_memory.svg"]    # one model, or several
        memory = next((path.read_text(errors="replace") for path in pictures if path.is_file()), "")
        return notebook.model(f"{self.name} on {self.target}, from {self.folder}", self._facts, memory,
                              self.target.name)


def _range_text(name: str, lower: int, upper: int | None) -> str:
    return f"{name} {lower}" if lower == upper else f"{name} from {lower}" + ("" if upper is None else f" to {upper}")


def _type(array: Array) -> str:
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"


def _column(column: Any, port: Port) -> Array:
    """Returns a column of a table as an input [rows, 1, …]."""
    array = np.asarray(column)
    if array.dtype != object and not port.strings:
        array = array.astype(np.dtype(port.dtype), casting="same_kind")
    return array.reshape(-1, *(1 for _ in port.shape[1:]))
