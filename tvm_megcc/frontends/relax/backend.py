# SPDX-License-Identifier: Apache-2.0
"""The backend inside TVM: partitions Relax modules and compiles our regions. TVM compiles the rest, into the same
library.

    mod = partition_for_megcc(mod, params)
    ex = tvm.compile(mod, target="megcc-native", relax_pipeline="megcc")

Importing this module registers with TVM: target tags, patterns, `relax.ext.megcc`, the pipeline "megcc".
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import tvm
from tvm import relax

from ...compiler import compile_graph
from ...errors import MegccError
from ...options import CompileOptions
from ...runtime import tvm_module
from ...target import Target
from ...tuning_log import TuningLog
from .. import tvm_backends
from ..tvm_common import target as tvm_target
from ..tvm_common.link import TARGET_SYMBOL
from ..tvm_common.options import from_attributes, region_options, to_attributes
from ..tvm_common.target import our_target
from ..tvm_common.tune import LOG, require_log, require_tuning_arguments
from . import patterns as relax_patterns
from .branches import with_whole_regions
from .importer import import_region, region_bucket
from .prepare import is_partitioned, outlined, prepare, rewrite
from .recursion import HideCalls, RestoreCalls
from .regions import PARTITIONED, TARGET, digest_of, is_foreign, is_ours, merge, require_module, was_partitioned
from .tune import log_of, tune_regions, with_log

#: The attribute of modules in which TVM's RunCodegen lists constants, which tvm.compile stores in the library.
_CONSTANTS = "const_name_to_constant"


def partition_for_megcc(mod: tvm.IRModule, params: Mapping | None = None, target=None, *, tir: bool = False,
                        **options) -> tvm.IRModule:
    """Partitions a module into regions that megcc has kernels for, and the rest, which stays with TVM.

    Args:
        mod: a Relax module from any of TVM's importers.
        params: weights to bind: {name: array} of "main", or the result of `relax.frontend.detach_params`.
        target: the target whose kernels count: "megcc-arm64", a `tvm.target.Target` or a `tvm_megcc.Target`; by default
            the target of the context, else this machine.
        tir: whether operators without a hand-written kernel, and `call_tir` of TIR functions, become C kernels printed
            from TVM's loops, if these can be printed. Otherwise they stay with TVM, whose own code for some is faster.
        options: `optimize`, `reproducible`, `activations` and `half`, as in `tvm_megcc.compile`.

    Returns:
        The module, in which each region is a function with the attribute Codegen = "megcc". `report(mod)` lists the
        operators of both parts.

    Raises:
        MegccError: for unknown parameters or options.
    """
    require_module(mod, "partition_for_megcc")
    chosen = region_options(options, "partition_for_megcc", "target, tir")
    if not isinstance(tir, bool):
        raise MegccError(f"tir is True or False, not {tir!r:.40}")
    cpu = our_target(target)
    attributes = {TARGET: cpu.name, **to_attributes(chosen)}
    mod = prepare(mod, params, loops=tir)
    # TVM's passes below do not support an If. A function with an If becomes the call of a region if one can compute
    # all of it; otherwise its dataflow blocks become functions of their own.
    mod = outlined(with_whole_regions(mod, cpu, attributes, loops=tir))
    patterns = relax_patterns.registered() + (relax_patterns.loops_table(mod) if tir else [])
    with relax_patterns.checking_for(cpu, mod):
        mod = relax.transform.FuseOpsByPattern(patterns, bind_constants=True)(mod)
    return merge(mod, attributes).with_attr(PARTITIONED, True)


def tune_megcc_kernels(mod: tvm.IRModule, target=None, trials: int | None = None, log: str | Path | None = None,
                       runner=None) -> tvm.IRModule:
    """Times all candidate kernels of a module's regions, so that the build can choose the fastest.

    Args:
        mod: the module; it is partitioned first if that has not been done.
        target: as in `partition_for_megcc`; by default the one the module was partitioned for.
        trials: the largest number of candidates to time for each call, most promising first; None: all.
        log: tuning log (docs/tuning.md). Times in it are not measured again; new times are appended.
        runner: where to measure; None: on this machine. `runtime.remote.RpcRunner("host:port", "key")` measures on the
            devices registered under a key at TVM's RPC tracker.

    Returns:
        The module with the times as attributes of its regions. A build does not need the log, and is reproducible.

    Raises:
        MegccError: if this machine cannot run the target's code and there is no runner, if all devices are lost, for an
            invalid line in the log, and for arguments of another kind.
    """
    require_module(mod, "tune_megcc_kernels")
    require_tuning_arguments(trials, log)
    if not _regions(mod):
        mod = partition_for_megcc(mod, target=target)
    regions = _regions(mod)
    if not regions:
        return mod
    return tune_regions(mod, _cpu_of(regions[0], target), _options_of(regions[0]).optimize, trials, log, runner)


def build_megcc_kernels(mod: tvm.IRModule, target=None, log: str | Path | None = None) -> tvm.IRModule:
    """Compiles the regions of a partitioned module. `tvm.compile` with any pipeline then compiles the rest.

    Args:
        target: as in `partition_for_megcc`; by default the one the module was partitioned for.
        log: tuning log; by default the times that `tune_megcc_kernels` stored in the module.

    Returns:
        The module with calls of compiled functions in place of the regions.
    """
    require_module(mod, "build_megcc_kernels")
    require_log(log)
    regions = _regions(mod)
    if not regions:
        return mod
    cpu = _cpu_of(regions[0], target)
    if log is not None:
        mod = with_log(mod, TuningLog.read(log), cpu, _options_of(regions[0]).optimize)
    # TVM's pass does not terminate on recursive functions, so their calls are hidden. Each function is an entry then.
    without_recursion = rewrite(mod, HideCalls) if relax.analysis.detect_recursion(mod) else mod
    with_kernels = relax.transform.RunCodegen({"megcc": {"target": cpu.name}}, _entries(mod))(without_recursion)
    if not any(map(is_foreign, mod.functions.values())):  # other code generators may need their constants
        with_kernels = _with_constants_of(with_kernels, mod)
    return rewrite(with_kernels, RestoreCalls) if without_recursion is not mod else with_kernels


def _regions(mod: tvm.IRModule) -> list[relax.Function]:
    return [function for function in mod.functions.values() if is_ours(function)]


def _cpu_of(region: relax.Function, given=None) -> Target:
    """Returns the CPU that a region is compiled for. given: a target that counts more than the region's attribute."""
    return our_target(given if given is not None else str(region.attrs[TARGET]))


def _with_constants_of(built: tvm.IRModule, mod: tvm.IRModule) -> tvm.IRModule:
    """Returns `built` with the constants that `mod` lists. TVM's pass also lists the constants of regions, for code
    generators that have them loaded with the library. Our object file contains them already: they would be in the
    library twice, and a constant without elements cannot be loaded at all."""
    constants = (mod.attrs or {}).get(_CONSTANTS)
    return built.without_attr(_CONSTANTS) if constants is None else built.with_attr(_CONSTANTS, constants)


def _options_of(region, generator: Mapping | None = None) -> CompileOptions:
    """Returns the options of a region. generator: options that were given to the code generator."""
    return from_attributes(region.attrs.get, generator)


def codegen(functions, options, _constant_names) -> list[tvm.runtime.Module]:
    """Compiles all regions of a module into one object file; registered as `relax.ext.megcc`.

    Regions that differ only in bounds, such as those of `Dispatch`'s clones, become one model with a bucket for each,
    so that their weights and kernels are stored once.

    functions: the regions. options: those that `RunCodegen` was given for "megcc". Returns a list of one TVM module.
    """
    if not functions:
        return []
    generator_options = dict(options or {})
    target = our_target(generator_options.pop("target", functions[0].attrs.get(TARGET)))
    functions_by_digest: dict[str, list[relax.Function]] = {}
    for function in functions:
        attributes = {**to_attributes(_options_of(function, generator_options)), LOG: function.attrs.get(LOG, "")}
        functions_by_digest.setdefault(digest_of(function, attributes), []).append(function)
    regions = {}
    for index, equal_functions in enumerate(functions_by_digest.values()):
        first = equal_functions[0]
        artifact = compile_graph(import_region(first, str(first.attrs["global_symbol"])), [target],
                                 _options_of(first, generator_options), name=f"region{index}", log=log_of(first),
                                 buckets=tuple(dict.fromkeys(map(region_bucket, equal_functions))))
        regions.update({str(function.attrs["global_symbol"]): artifact for function in equal_functions})
    with tvm_module.compile_regions(regions, target) as (path, symbols):
        return [tvm.runtime.load_static_library(str(path), [*symbols, TARGET_SYMBOL + target.name])]


def apply_pipeline(mod: tvm.IRModule, target=None) -> tvm.IRModule:
    """Applies the pipeline "megcc" to a module: partitions it if that has not been done, compiles our regions, and
    applies TVM's default pipeline to the rest."""
    cpu = our_target(target)
    if not was_partitioned(mod):
        mod = partition_for_megcc(mod, target=cpu)
    return tvm_backends.original("default")()(build_megcc_kernels(mod, cpu))


def _entries(mod: tvm.IRModule) -> list[str]:
    """Returns the names of the functions that are neither regions nor composites."""
    return [var.name_hint for var, function in mod.functions.items()
            if isinstance(function, relax.Function) and not is_partitioned(function)]


def build(mod: tvm.IRModule, target="megcc-native", params: Mapping | None = None, **options) -> relax.VMExecutable:
    """Partitions and compiles a Relax module: `tvm.compile` with the pipeline "megcc".

    Args:
        target, params, options: as in `partition_for_megcc`.

    Returns:
        TVM's executable: `relax.VirtualMachine` runs it, `export_library` writes it.
    """
    require_module(mod, "build")
    cpu = our_target(target)
    if not was_partitioned(mod):
        mod = partition_for_megcc(mod, params, cpu, **options)
    elif params or options:
        raise MegccError("the module is partitioned already: give params and options to partition_for_megcc")
    return tvm.compile(mod, target=tvm.target.Target(tvm_target.config(cpu)), relax_pipeline=tvm_backends.pipeline(cpu))


tvm_backends.register()
relax_patterns.register()
