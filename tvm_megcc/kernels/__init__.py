# SPDX-License-Identifier: Apache-2.0
"""The kernels. Each folder is a family with its classes, packing, tiling and templates.

The table lists the candidate kernels of each operator. Among candidates of equal cost, the first is taken.
"""

from __future__ import annotations

from .. import ops
from .attention.queries import AttentionColumns, AttentionFewQueries
from .attention.rotary import RotaryRows
from .base import realise
from .conv2d.depthwise import DepthwiseConv
from .conv2d.direct import DirectConv
from .conv2d.pixels import PixelConv
from .conv2d.plain import PlainConv
from .conv2d.winograd import WinogradConv
from .conv2d_transpose.phases import PhasesTransposedConv, PlainTransposedConv, SumsTransposedConv
from .conv3d.rows import RowsConv3d
from .draw.philox import PhiloxBlocks
from .dsp.pairs import PairConv, PairMatMul
from .dsp.planes import DspDepthwise
from .dsp.triples import DspConv, DspMatMul
from .elementwise.float16 import FLOAT16_BLOCKS, FLOAT16_LOOPS
from .elementwise.lookup import LookupBytes
from .elementwise.loops import LANES, SCALAR, VECTOR
from .extern.call import ExternCall
from .gather.gather import GatherElements, GatherPoints, GatherRuns
from .gather.scatter import ScatterElements, ScatterPoints
from .helium.helium import HeliumConv, HeliumDepthwise, HeliumMatMul
from .input.convert import ConvertRuns
from .integer.dot import DotConv, DotMatMul
from .integer.panel import PanelBytesMatMul
from .integer.plain import PlainBytesConv, PlainBytesMatMul
from .integer.pmaddubsw import PmaddubswConv, PmaddubswMatMul
from .integer.winograd import WinogradBytes
from .integer_depthwise.depthwise import DepthwiseBytes
from .integer_pool.pool import MaxPoolBytes, ReduceSumBytes, SumPoolBytes
from .linear.coupling import Coupling
from .linear.determinant import Elimination
from .linear.fourier import FourierPasses
from .matmul.int4 import Int4Rows
from .matmul.nbits import NBitsInt8MatMul, NBitsMatMul, QuantizeBlocksKernel
from .matmul.nbits_rows import NBitsRowsGather
from .matmul.packed import DotsMatMul, PackedMatMul, PanelMatMul, ScalarMatMul
from .matmul.packed_rows import PackedRowsGather
from .move.append import AppendRows, WidenCache
from .move.copies import ConcatRuns, PadRows
from .move.copy import StridedCopy
from .move.relayout import RelayoutBlocks, RelayoutElements, RelayoutMatrix
from .move.reverse import ReverseRuns
from .move.strided import StridedExpand, StridedSlice, StridedTile, StridedTranspose, TransposeMatrix
from .move.transpose_narrow import RelayoutNarrow, TransposeNarrow
from .norm.l2 import L2Slices
from .norm.layer import LayerNormBytes, LayerNormRows, RmsNormRows
from .norm.lrn import LrnPixels
from .pool.columns import ColumnsRows, ScatterMaxima
from .pool.windows import GlobalPool, PlainGlobalPool, PlainPool, WindowPool
from .quant.axis import DequantizeKernel, QuantizeKernel
from .quant.dynamic import DynamicQuantizeKernel
from .reduce.along_axis import ArgExtremeBytes, ArgExtremeScalars, CumulativeScalars
from .reduce.products import FixedProducts
from .reduce.reducers import ReduceScalars, ReduceVectors
from .resize.bilinear import BilinearBytes
from .resize.resample import ResampleRuns
from .resize.resize import ResizeLinear, ResizeNearest, TablesKernel
from .rnn.fixed import FixedSteps
from .rnn.hybrid import HybridSteps
from .rnn.steps import DotSteps, PackedSteps
from .sample.deform_conv import TilesDeformConv, WindowsDeformConv
from .sample.grid import GridPixels
from .sample.roi import RoiAlignBins, RoiPoolBins
from .search.ctc import CtcAlignment, CtcBeamSearch, CtcGreedySearch
from .search.labels import LabelsCopies
from .shape.control import Inlined
from .shape.dims import DimsKernel
from .softmax.fixed import SoftmaxFixedRows, SoftmaxInt16Rows
from .softmax.log import LogSoftmaxFixedRows
from .softmax.quantised import SoftmaxQuantisedRows
from .softmax.softmax import SoftmaxColumns, SoftmaxRows, SoftmaxShortRows
from .sort.counted import NonMaxSearch, NonZeroCount, NonZeroScan
from .sort.db_boxes import DbBoxesComponents
from .sort.detections import DetectionsSearch
from .sort.grams import GramSearch
from .sort.heap import TopKHeap
from .sort.unique import UniqueSort
from .tir.loops import TirLoops
from .tree.masks import TreeMasks
from .tree.walk import TreeWalk

realise(ops.nn.conv.Conv2d, DirectConv(), WinogradConv(), WinogradConv(raw=True), DepthwiseConv(), PixelConv(),
        PlainConv())
realise(ops.nn.conv3d.Conv3d, RowsConv3d())
realise(ops.nn.conv_transpose.Conv2dTranspose, PhasesTransposedConv(), SumsTransposedConv(), PlainTransposedConv())
realise(ops.nn.deform_conv.DeformConv, TilesDeformConv(), WindowsDeformConv())
realise(ops.nn.fused_attention.Attention, AttentionColumns(), AttentionFewQueries())
realise(ops.math.matmul.MatMul, PackedMatMul(), DotsMatMul(), PanelMatMul(), ScalarMatMul())
realise(ops.math.matmul_rows.MatMulRows, PackedRowsGather())
realise(ops.quantized.nbits.MatMulNBits, NBitsMatMul())
realise(ops.quantized.nbits.MatMulNBitsInt8, NBitsInt8MatMul())
realise(ops.quantized.nbits.QuantizeBlocks, QuantizeBlocksKernel())
realise(ops.quantized.nbits_rows.NBitsRows, NBitsRowsGather())
realise(ops.quantized.int4.DequantizeInt4, Int4Rows())
realise(ops.quantized.conv_matmul.Conv2dInteger, DotConv(), PmaddubswConv(), WinogradBytes(), PairConv(), DspConv(),
        DspDepthwise(), HeliumConv(), HeliumDepthwise(), DepthwiseBytes(), PlainBytesConv())
realise(ops.quantized.conv_matmul.MatMulInteger, DotMatMul(), PmaddubswMatMul(), PairMatMul(), DspMatMul(),
        HeliumMatMul(), PanelBytesMatMul(), PlainBytesMatMul())
realise(ops.quantized.pool_reduce.SumPoolInteger, SumPoolBytes())
realise(ops.quantized.pool_reduce.ReduceSumInteger, ReduceSumBytes())
realise(ops.math.spectral.Determinant, Elimination("determinant"))
realise(ops.math.fourier.Fourier, FourierPasses())
realise(ops.math.spectral.Inverse, Elimination("inverse"))
realise(ops.ml.coupling.CoupledProbabilities, Coupling())
realise(ops.recurrent.rnn.Lstm, PackedSteps(), DotSteps())
realise(ops.recurrent.rnn.Gru, PackedSteps(), DotSteps())
realise(ops.recurrent.rnn.Rnn, PackedSteps(), DotSteps())
realise(ops.quantized.reduce_prod.ProductFixed, FixedProducts())
realise(ops.quantized.dynamic_quantize_linear.DynamicQuantize, DynamicQuantizeKernel())
realise(ops.nn.layer_norm.LayerNorm, LayerNormRows())
realise(ops.nn.layer_norm.RmsNorm, RmsNormRows())
realise(ops.nn.rotary.Rotary, RotaryRows())
realise(ops.quantized.layer_norm.LayerNormQuantised, LayerNormBytes())
realise(ops.recurrent.lstm_int8.LstmFixed, FixedSteps())
realise(ops.recurrent.hybrid.RecurrentSteps, HybridSteps())

realise(ops.elementwise.Elementwise, VECTOR, SCALAR)
realise(ops.elementwise.Fused, VECTOR, SCALAR, LANES)
realise(ops.nn.activation.Clip, VECTOR, SCALAR)
realise(ops.elementwise.Where, SCALAR)
realise(ops.cast.Cast, FLOAT16_LOOPS, FLOAT16_BLOCKS, SCALAR)
realise(ops.quantized.lookup_table.Lookup, LookupBytes())
realise(ops.quantized.quantize_linear.DequantizeLinear, DequantizeKernel())
realise(ops.quantized.quantize_linear.QuantizeLinear, QuantizeKernel())

realise(ops.nn.pool._Pool, WindowPool(), PlainPool(), GlobalPool(), PlainGlobalPool())
realise(ops.nn.pool.MaxPool, WindowPool(), PlainPool(), MaxPoolBytes(), GlobalPool(), PlainGlobalPool())
realise(ops.nn.pool.MaxPoolIndices, PlainPool())
realise(ops.nn.pool._GlobalPool, GlobalPool(), PlainGlobalPool())
realise(ops.nn.col2im.Col2Im, ColumnsRows())
realise(ops.nn.col2im.MaxUnpool, ScatterMaxima())
realise(ops.nn.lrn.Lrn, LrnPixels())
realise(ops.quantized.rsqrt.L2Fixed, L2Slices())
realise(ops.math.reduce.Reduction, ReduceVectors(), ReduceScalars())
realise(ops.math.reduce.ArgExtreme, ArgExtremeBytes(), ArgExtremeScalars())
realise(ops.math.reduce.Cumulative, CumulativeScalars())
realise(ops.nn.softmax.Softmax, SoftmaxRows(), SoftmaxShortRows(), SoftmaxColumns())
realise(ops.quantized.softmax_int8.SoftmaxFixed, SoftmaxFixedRows())
realise(ops.quantized.softmax_int16.SoftmaxWide, SoftmaxInt16Rows())
realise(ops.quantized.softmax.SoftmaxQuantised, SoftmaxQuantisedRows())
realise(ops.quantized.log_softmax.LogSoftmaxFixed, LogSoftmaxFixedRows())
realise(ops.tensor.sort.TopK, TopKHeap())
realise(ops.strings.ngrams.CountGrams, GramSearch())
realise(ops.vision.detections.Detections, DetectionsSearch())
realise(ops.vision.db_boxes.DbBoxes, DbBoxesComponents())
realise(ops.search.ctc.CtcGreedy, CtcGreedySearch())
realise(ops.search.ctc.CtcBeam, CtcBeamSearch())
realise(ops.search.ctc.CtcAlign, CtcAlignment())
realise(ops.search.labels.Labels, LabelsCopies())
realise(ops.tensor.data_dependent.NonMaxSuppression, NonMaxSearch())
realise(ops.control.loops.Loop, Inlined())
realise(ops.control.loops.Branch, Inlined())
realise(ops.tensor.data_dependent.CountNonZero, NonZeroCount())
realise(ops.tensor.data_dependent.NonZero, NonZeroScan())
realise(ops.tensor.unique.Unique, UniqueSort())

realise(ops.tensor.move.Transpose, TransposeNarrow(), TransposeMatrix(), StridedTranspose())
realise(ops.tensor.move.Relayout, RelayoutNarrow(), RelayoutMatrix(), RelayoutBlocks(), RelayoutElements())
realise(ops.tensor.move.Concat, ConcatRuns())
realise(ops.tensor.move.Slice, StridedSlice())
realise(ops.tensor.move.Pad, PadRows())
realise(ops.tensor.move.Tile, StridedTile())
realise(ops.tensor.shape.Expand, StridedExpand())
realise(ops.tensor.shape.Dims, DimsKernel())
realise(ops.tensor.copy.Copy, StridedCopy())
realise(ops.tensor.gather.Gather, GatherRuns())
realise(ops.tensor.gather.GatherElements, GatherElements())
realise(ops.tensor.gather.GatherND, GatherPoints())
realise(ops.tensor.append.Append, AppendRows())
realise(ops.tensor.append.WidenCache, WidenCache())
realise(ops.tensor.scatter.ScatterElements, ScatterElements())
realise(ops.tensor.scatter.ScatterND, ScatterPoints())
realise(ops.tensor.reverse.ReverseSequence, ReverseRuns())
realise(ops.tensor.preprocess.ConvertInput, ConvertRuns())

realise(ops.vision.resample.Resample, ResampleRuns())
realise(ops.vision.resize.Resize, ResizeNearest(), ResizeLinear())
realise(ops.vision.resize_bilinear.ResizeBilinear, BilinearBytes())
realise(ops.vision.resize_tables.ResizeTables, TablesKernel())
realise(ops.vision.grid_sample.GridSample, GridPixels())
realise(ops.vision.roi.RoiAlign, RoiAlignBins())
realise(ops.vision.roi.MaxRoiPool, RoiPoolBins())

realise(ops.random.philox.Draw, PhiloxBlocks())
realise(ops.control.extern.Extern, ExternCall())
realise(ops.control.tir.Tir, TirLoops())
realise(ops.ml.trees.Trees, TreeMasks(), TreeWalk())
