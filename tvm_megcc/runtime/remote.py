# SPDX-License-Identifier: Apache-2.0
"""Boards that are reached through TVM's RPC tracker, on which they registered with TVM's RPC server. TVM is imported on
first use."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ..errors import MegccError
from ..target import Target
from .device import DeviceSession, build_library
from .timing import Library, Lost, Measurement, Sample

#: The seconds to wait for a free device while some are registered with the key.
PATIENCE = 30.0
#: The number of devices that are tried one after the other, before sending them a library has failed.
ATTEMPTS = 2


class Tracker:
    """A TVM RPC tracker, and the devices with one key.

    Args:
        address: "host:port".
        key: the key with which the devices registered.

    Raises:
        MegccError: if the address is invalid, no tracker answers there, or TVM is not installed.
    """

    def __init__(self, address: str, key: str):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise MegccError(f"the tracker's address is HOST:PORT, not '{address}'")
        self.address, self.key, self._endpoint = address, key, (host, int(port))
        self._request_lock = threading.Lock()
        try:
            from tvm import rpc
        except ModuleNotFoundError as error:
            raise MegccError("devices are reached through TVM, which is not installed: "
                             "pip install 'tvm_megcc[tvm]'") from error
        self._rpc = rpc
        self._summary()

    def _summary(self) -> dict:
        """Returns the tracker's summary of its devices. Raises MegccError if no tracker answers."""
        try:
            # TVM tries to connect for a minute, so a socket finds out first whether the tracker is there.
            socket.create_connection(self._endpoint, timeout=5).close()
            tracker = self._rpc.connect_tracker(*self._endpoint)
            try:
                return tracker.summary()
            finally:
                tracker.close()
        except (OSError, RuntimeError) as error:
            raise MegccError(f"no RPC tracker answers at {self.address}: {error}\n  Start one with "
                             f"'python -m tvm.exec.rpc_tracker --host 0.0.0.0 --port {self._endpoint[1]}'") from None

    def registered(self) -> int:
        """Returns the number of devices with the key.

        Raises:
            MegccError: if there is none, listing the existing keys.
        """
        keys = [server["key"].partition(":")[2] for server in self._summary()["server_info"]]
        if self.key not in keys:
            raise MegccError(f"no device '{self.key}' is registered at the tracker {self.address}; it has "
                             f"{', '.join(sorted(set(keys))) or 'none'}\n  On the device: "
                             f"'python -m tvm.exec.rpc_server --tracker HOST:{self._endpoint[1]} --key {self.key}'")
        return keys.count(self.key)

    def _connect(self, seconds: float):
        """Connects like TVM's `TrackerSession.request` (tvm/rpc/client.py), which does not return the name of the
        device."""
        base = self._rpc.base
        tracker = self._rpc.connect_tracker(*self._endpoint)
        user, priority = "", 1
        try:
            base.sendjson(tracker._sock, [base.TrackerCode.REQUEST, self.key, user, priority])
            status, address = base.recvjson(tracker._sock)
        finally:
            tracker.close()
        if status != base.TrackerCode.SUCCESS:
            raise RuntimeError(f"the tracker answered {status}")
        host, port, match = address
        return self._rpc.connect(host, port, match, session_timeout=seconds), f"{self.key} ({host}:{port})"

    def request(self, seconds: float):
        """Returns an RPC session on the next free device, and the device's name. The session ends after `seconds`.

        Raises:
            Lost: if no device is left, or none becomes free.
        """
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self.registered()   # a device that was lost does not become free again
                # The tracker makes a request wait until a device is free, however long that takes. So a thread asks
                # only if one is free, and no other thread takes it meanwhile.
                with self._request_lock:
                    free = self._summary()["queue_info"].get(self.key, {}).get("free", 0)
                    if free:
                        return self._connect(seconds)
            except MegccError as error:
                raise Lost(str(error)) from None
            except (OSError, RuntimeError) as error:
                if time.monotonic() > until:
                    raise Lost(f"{self.key} does not answer: {error}") from None
            if time.monotonic() > until:
                raise Lost(f"no device '{self.key}' got free within {PATIENCE:.0f} s")
            time.sleep(0.2)


class _Loaded:
    """A library on a device."""

    def __init__(self, session, device: str, path: Path, target: Target):
        import tvm

        self._tvm, self._session, self._cpu, self.device = tvm, session, session.cpu(0), device
        try:
            session.upload(str(path))
        except Exception as error:
            raise Lost(_first_line(error)) from None
        try:
            self._module = session.load_module(path.name)
        except Exception as error:
            if self._answers():
                raise MegccError(f"{self.device} does not load code for {target}: {_first_line(error)}") from None
            raise Lost(_first_line(error)) from None

    def _answers(self) -> bool:
        try:
            self._session.get_function("tvm.rpc.server.upload")
        except Exception:
            return False
        return True

    def close(self) -> None:
        """Ends the session, so that the device is free for others, even if references to the session remain."""
        try:
            self._session._sess["CloseRPCConnection"]()
        except Exception:
            pass  # it is gone already

    def to_device(self, array: np.ndarray):
        return self._tvm.runtime.tensor(np.ascontiguousarray(array).reshape(-1).view(np.uint8), self._cpu)

    def call(self, name: str, inputs: Sequence, outputs: Sequence[np.ndarray]) -> int:
        """Calls a function with inputs (arrays or results of `to_device`) and outputs, which it fills. Returns its
        status."""
        try:
            given = [self.to_device(item) if isinstance(item, np.ndarray) else item for item in inputs]
            results = [self.to_device(output) for output in outputs]
            status = int(self._module[name](*given, *results))
            for output, result in zip(outputs, results, strict=True):
                output.reshape(-1).view(np.uint8)[:] = result.numpy()
        except Exception as error:
            raise Lost(_first_line(error)) from None
        return status


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:200] if lines else "the connection ended without a reason"


class RpcRunner:
    """The runner that measures on all devices with a key at a tracker, in parallel. Its interface is that of
    `timing.LocalRunner`.

    Args:
        address: "host:port" of the tracker.
        key: the key of the devices.
    """

    program = False     # kernels are a shared library, which an RPC server loads

    def __init__(self, address: str, key: str):
        self._tracker = Tracker(address, key)
        self.devices = self._tracker.registered()

    def require(self, target: Target) -> None:
        """Sets the target that libraries are built for. Raises MegccError if it has no operating system."""
        if target.bare_metal:
            raise MegccError(f"{target} has no operating system to run an RPC server")
        self._target = target

    @contextmanager
    def session(self, built: Library, seconds: float) -> Iterator[RpcSession]:
        """Yields a session on a free device, with the library of kernels loaded. Raises Lost if there is none."""
        for attempt in range(ATTEMPTS):
            try:
                loaded = _Loaded(*self._tracker.request(seconds), built.path, self._target)
                break
            except Lost:
                if attempt == ATTEMPTS - 1:
                    raise
        try:
            yield RpcSession(loaded)
        finally:
            loaded.close()


class RpcSession:
    """A library of kernels on a device, with the interface of `timing.LocalSession`."""

    def __init__(self, loaded: _Loaded):
        self._loaded, self.device = loaded, loaded.device

    def measure(self, measurement: Measurement, kernel: int) -> Sample:
        result = np.zeros(measurement.result_bytes, np.uint8)
        job = np.frombuffer(measurement.job(kernel), np.uint8)
        status = self._loaded.call("megcc_measure", [job], [result])
        return measurement.sample(status, result.tobytes())


class RpcLink:
    """A compiled model on a device; see device.Link."""

    def __init__(self, tracker: Tracker, library: Path, target: Target, seconds: float):
        try:
            self._loaded = _Loaded(*tracker.request(seconds), library, target)
        except Lost as error:
            raise MegccError(f"{tracker.key} at {tracker.address}: {error}") from None
        self.where = self._loaded.device

    def keep(self, array: np.ndarray):
        return self._loaded.to_device(array)

    def close(self) -> None:
        self._loaded.close()

    def call(self, name: str, inputs: Sequence, outputs: Sequence[np.ndarray]) -> int:
        try:
            return self._loaded.call(f"megcc_device_{name}", inputs, outputs)
        except Lost as error:
            raise MegccError(f"{self.where} was lost: {error}") from None


def remote_session(folder: str | Path, address: str, key: str, target: Target | str | None = None,
                   cc: str | None = None, model: str | None = None, seconds: float = 600) -> DeviceSession:
    """Sends the model of a generated folder to a device and opens a session there.

    Args:
        folder: the generated folder.
        address, key: "host:port" of the tracker, and the key of the device.
        target: the folder's target that the device runs.
        cc: the C compiler.
        model: the name of the model, if the folder has several.
        seconds: the time after which the server ends the session.

    Raises:
        MegccError: if there is no device with the key, or it does not load the code.
    """
    tracker = Tracker(address, key)
    tracker.registered()
    built = build_library(folder, target, cc, model)
    return DeviceSession(built, RpcLink(tracker, built.library, built.target, seconds))
