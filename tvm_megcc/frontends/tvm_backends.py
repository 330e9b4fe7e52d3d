# SPDX-License-Identifier: Apache-2.0
"""Registers our target tags, patterns, code generator, pipelines and linker with Relax on `import tvm`. It imports
little, since it is part of every `import tvm`; other modules are imported on first use."""

from __future__ import annotations

import functools
import importlib
import inspect
import warnings

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.backend import pattern_registry

from ..errors import MegccError
from .tvm_common import target as tvm_target
from .tvm_common.link import linker_of, targets_of

#: The module with the implementation.
_BACKEND = f"{__package__}.relax.backend"
#: The prefix of the names of our patterns.
PREFIX = "megcc."


def original(name: str):
    """Returns the object of TVM that ours of this name replaced: one of the keys of `_ORIGINALS`."""
    return _ORIGINALS[name]


def _backend():
    return importlib.import_module(_BACKEND)


def pipeline(target=None):
    """Returns the Relax pipeline "megcc": partitions the module unless that has been done, then runs our code generator
    and TVM's default pipeline."""
    return tvm.transform.module_pass(lambda mod, _context: _backend().apply_pipeline(mod, target),
                                     opt_level=0, name="megcc")


def default_pipeline(**options):
    """Returns TVM's default pipeline; "megcc" if the target of the context or of regions in the module is ours."""
    default = original("default")(**options)

    def apply(mod, _context):
        return _backend().apply_pipeline(mod) if _is_for_us(mod) else default(mod)

    return tvm.transform.module_pass(apply, opt_level=0, name="default")


def _is_for_us(mod: tvm.IRModule) -> bool:
    """Whether the default pipeline compiles a module with us: for our target, or because it has regions of ours."""
    return tvm_target.is_ours(tvm.target.Target.current(allow_none=True)) or any(map(is_region, mod.functions.values()))


def _default_pipeline_of_cpu(target):
    """Returns TVM's default pipeline for a CPU; "megcc" for one of our targets."""
    return pipeline(target) if tvm_target.is_ours(target) else original("get_default_pipeline")(target)


def _build(*arguments, **keywords):
    """Replaces `relax.build`, which `tvm.compile` calls. If a pipeline left our regions uncompiled, the error says
    which pipeline to use."""
    call = inspect.signature(original("build")).bind(*arguments, **keywords)
    call.apply_defaults()
    mod, pipeline_given = call.arguments["mod"], call.arguments["relax_pipeline"]
    regions = sorted(var.name_hint for var, function in mod.functions.items() if is_region(function))
    advice = ("leave relax_pipeline out, or give 'megcc'. Before any other pipeline, compile the regions: "
              "tvm_megcc.build_megcc_kernels(mod)")
    target = call.arguments["target"]
    if isinstance(target, str) and target.startswith(tvm_target.PREFIX):
        tvm_target.our_target(target)  # raises, listing our targets, for an unknown one
    is_compiled = "external_mods" in (mod.attrs or {})
    if isinstance(pipeline_given, str) and pipeline_given not in _OUR_PIPELINES and not regions and not is_compiled \
            and tvm_target.is_ours(tvm.target.Target(target) if isinstance(target, (str, dict)) else target):
        warnings.warn(f"the pipeline '{pipeline_given}' leaves the whole module to TVM; for kernels of megcc {advice}",
                      stacklevel=3)
    try:
        return original("build")(*arguments, **keywords)
    except MegccError:
        raise
    except Exception as error:
        if not regions or pipeline_given in _OUR_PIPELINES:
            raise
        named = f"'{pipeline_given}'" if isinstance(pipeline_given, str) else "that was given"
        raise MegccError(f"the pipeline {named} does not compile the regions of megcc in this module "
                         f"({', '.join(regions[:3])}{', …' * (len(regions) > 3)}); {advice}") from error


def is_region(function) -> bool:
    """Whether a function is a region of ours that is not compiled yet."""
    return function.attrs is not None and function.attrs.get("Codegen") == "megcc"


def _codegen(functions, options, constant_names):
    return _backend().codegen(functions, options, constant_names)


def _get_patterns_with_prefix(prefix: str):
    """Replaces TVM's function of this name; creates our patterns on the first request for them."""
    if prefix.startswith(PREFIX) or PREFIX.startswith(prefix):
        _backend()
    return original("get_patterns_with_prefix")(prefix)


def _get_pattern(name: str):
    if name.startswith(PREFIX):
        _backend()
    return original("get_pattern")(name)


def _export_library(self, file_name, *, fcompile=None, **keywords):
    """Replaces `export_library` of TVM's executables; links with the compiler of our target if that is not this
    machine."""
    if fcompile is None and not str(file_name).endswith(".tar"):
        parts = self.mod._collect_from_import_tree(lambda module: module.kind == "static_library")
        fcompile = linker_of(targets_of(parts, lambda part, name: part.implements_function(name)))
    return original("export_library")(self, file_name, fcompile=fcompile, **keywords)


#: Names of pipelines that compile our regions.
_OUR_PIPELINES = ("default", "megcc")
#: TVM's own objects that ours replace.
_ORIGINALS = {"default": relax.pipeline.PIPELINE_MAP["default"], "build": relax.build,
              "get_default_pipeline": relax.backend.cpu_generic.get_default_pipeline,
              "get_patterns_with_prefix": pattern_registry.get_patterns_with_prefix,
              "get_pattern": pattern_registry.get_pattern, "export_library": relax.VMExecutable.export_library}


def register() -> None:
    """Registers everything with TVM; repeating it changes nothing."""
    tvm_target.register()
    tvm_ffi.register_global_func("relax.ext.megcc", _codegen, override=True)
    tvm_ffi.register_error("MegccError", MegccError)  # otherwise it becomes a RuntimeError when a pass raises it
    relax.VMExecutable.export_library = functools.wraps(original("export_library"))(_export_library)
    relax.pipeline.PIPELINE_MAP.update(megcc=pipeline, default=default_pipeline)
    relax.build = functools.wraps(original("build"))(_build)
    relax.backend.cpu_generic.get_default_pipeline = \
        functools.wraps(original("get_default_pipeline"))(_default_pipeline_of_cpu)
    for name, ours in (("get_patterns_with_prefix", _get_patterns_with_prefix), ("get_pattern", _get_pattern)):
        for module in (pattern_registry, relax.backend):
            setattr(module, name, functools.wraps(original(name))(ours))
