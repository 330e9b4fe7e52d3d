# SPDX-License-Identifier: Apache-2.0
"""Modules of `relax.frontend.nn`: a language model whose cache is TVM's, and whose products are ours."""

from __future__ import annotations

import numpy as np
import pytest

tvm = pytest.importorskip("tvm", reason="TVM is not installed")
if not hasattr(tvm, "relax"):
    pytest.skip("this TVM has no Relax", allow_module_level=True)

import tvm_ffi  # noqa: E402
from tvm import relax, tirx  # noqa: E402
from tvm.relax.frontend import nn  # noqa: E402
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache, RopeMode, TIRPagedKVCache  # noqa: E402

from .modules import assert_same, megcc, number  # noqa: E402

HEADS, SHARED, WIDTH, WORDS, LAYERS = 4, 2, 16, 50, 2
CHANNELS = HEADS * WIDTH
LIMITS = ("max_batch_size", "max_total_seq_len", "prefill_chunk_size", "page_size", "support_sliding_window")
FORWARD = ("embed", "prefill", "decode")


class Layer(nn.Module):
    """Grouped-query attention in the cache, and a gated perceptron."""

    def __init__(self, index: int):
        self.index = index
        self.before, self.behind = (nn.RMSNorm(CHANNELS, -1, 1e-5, bias=False) for _ in range(2))
        self.qkv = nn.Linear(CHANNELS, (HEADS + 2 * SHARED) * WIDTH, bias=False)
        self.out = nn.Linear(CHANNELS, CHANNELS, bias=False)
        self.up, self.down = nn.Linear(CHANNELS, 2 * CHANNELS), nn.Linear(CHANNELS, CHANNELS)

    def forward(self, x: nn.Tensor, cache: PagedKVCache):
        batch, length, _ = x.shape
        qkv = self.qkv(self.before(x)).reshape(batch, length, HEADS + 2 * SHARED, WIDTH)
        attended = cache.attention_with_fused_qkv(self.index, qkv, HEADS, sm_scale=WIDTH ** -0.5)
        x = x + self.out(attended.reshape(batch, length, CHANNELS))
        gate, value = nn.op.split(self.up(self.behind(x)), 2, axis=-1)
        return x + self.down(nn.op.silu(gate) * value)


class Model(nn.Module):
    def __init__(self):
        self.words = nn.Embedding(WORDS, CHANNELS)
        self.layers = nn.ModuleList([Layer(index) for index in range(LAYERS)])
        self.norm, self.head = nn.RMSNorm(CHANNELS, -1, 1e-5, bias=False), nn.Linear(CHANNELS, WORDS)

    def embed(self, ids: nn.Tensor):
        return self.words(ids)

    def prefill(self, x: nn.Tensor, cache: PagedKVCache):
        for layer in self.layers:
            x = layer(x, cache)
        return self.head(self.norm(x)), cache

    decode = prefill

    def create_cache(self, max_batch_size: tirx.Var, max_total_seq_len: tirx.Var, prefill_chunk_size: tirx.Var,
                     page_size: tirx.Var, support_sliding_window: tirx.Var):
        return TIRPagedKVCache(
            attn_kind="mha", max_batch_size=max_batch_size, max_total_seq_len=max_total_seq_len,
            prefill_chunk_size=prefill_chunk_size, page_size=page_size, support_sliding_window=support_sliding_window,
            layer_partition=relax.ShapeExpr([0, LAYERS]), num_hidden_layers=LAYERS, num_attention_heads=HEADS,
            num_key_value_heads=SHARED, qk_head_dim=WIDTH, v_head_dim=WIDTH, mla_original_qk_head_dim=0,
            mla_original_v_head_dim=0, rope_mode=RopeMode.NORMAL, rope_scale=1, rope_theta=10000, rope_scaling={},
            rope_ext_factors=number(0), rotary_dim=WIDTH, enable_disaggregation=False, dtype="float32",
            target=tvm.target.Target("llvm"))


@pytest.fixture(scope="module")
def exported():
    """(module, values of its parameters in order) of the model."""
    def block(length):
        return {"x": nn.spec.Tensor([1, length, CHANNELS], "float32"),
                "cache": nn.spec.Object(object_type=PagedKVCache)}

    mod, parameters = Model().export_tvm({
        "embed": {"ids": nn.spec.Tensor(["n"], "int32")}, "prefill": block("n"), "decode": block(1),
        "create_cache": dict.fromkeys(LIMITS, int)})
    random = np.random.default_rng(0)
    shapes = [[int(extent) for extent in value.shape] for _, value in parameters]
    return mod, [tvm.runtime.tensor((random.standard_normal(shape) / 4).astype("float32")) for shape in shapes]


def generated(executable, parameters) -> list[np.ndarray]:
    """Logits of a prompt of five words, and of two words behind it."""
    machine = relax.VirtualMachine(executable, tvm.cpu())
    add, begin, end = (tvm.get_global_func(f"vm.builtin.kv_state_{name}")
                       for name in ("add_sequence", "begin_forward", "end_forward"))
    cache = machine["create_cache"](*(tvm_ffi.Shape([size]) for size in (1, 64, 32, 16, 0)), *parameters)
    add(cache, 0)
    logits = []
    for words in ([3, 7, 11, 2, 40], [5], [9]):
        begin(cache, tvm_ffi.Shape([0]), tvm_ffi.Shape([len(words)]))
        x = machine["embed"](tvm.runtime.tensor(np.array(words, "int32")), *parameters).numpy()
        function = machine["prefill" if len(words) > 1 else "decode"]
        result, cache = function(tvm.runtime.tensor(x.reshape(1, len(words), CHANNELS)), cache, *parameters)
        end(cache)
        logits.append(result.numpy())
    return logits


@pytest.mark.slow
@pytest.mark.parametrize("bound", [True, pytest.param(False, marks=pytest.mark.long)], ids=["constants", "parameters"])
def test_paged_cache(exported, bound):
    """All products are ours, between calls of the cache, with weights inside or passed with every call."""
    mod, parameters = exported
    expected = generated(tvm.compile(mod, target="llvm"), parameters)
    names = (*FORWARD, "create_cache") if bound else ()
    partitioned = megcc.partition_for_megcc(mod, {name: parameters for name in names}, target="megcc-c")
    report = megcc.report(partitioned)
    assert report.share == 1.0, str(report)
    assert set(report.theirs) <= {"relax.call_dps_packed", "relax.call_pure_packed", "relax.zeros"}, str(report)
    assert_same(generated(tvm.compile(partitioned, target="megcc-c"), () if bound else parameters), expected)


def test_module(exported):
    """A function without a cache is one region."""
    mod, parameters = exported
    report = megcc.report(megcc.partition_for_megcc(tvm.IRModule({"embed": mod["embed"]}), {"embed": parameters}))
    assert not report.theirs and len(report.regions) == 1, str(report)
