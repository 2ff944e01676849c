"""Heads side by side in vector registers: the vector type the numba kernels are written in.

``Lanes(width, dtype, masked)`` says how wide a kernel computes and in what precision. It is passed to the kernel as an argument, so
that numba compiles one specialisation per kind of lanes and finds it again in its cache on disk, which it could not do
with a closure. Where the number of heads is not a multiple of the width the lanes are masked: ``load_some`` and
``store_some`` then touch only the first ``count`` lanes.

Indices are flat and never negative, so no wrap-around code stands in the inner loops.
"""

from __future__ import annotations

import hashlib
import operator
from pathlib import Path

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import NativeValue, intrinsic, models, register_model, typeof_impl, unbox

# numba's cache looks only at the file of the function it compiles. The sources of all kernels are therefore part of the type
# that every kernel is specialised on: a change in any of them is a cache miss in all.
_SOURCES = sorted(Path(__file__).parent.glob("cpu*.py")) + [Path(__file__)]
_STAMP = hashlib.sha256(b"".join(source.read_bytes() for source in _SOURCES)).hexdigest()[:12]


_BYTES = ir.IntType(8).as_pointer()  # what the intrinsics that take any pointer are declared with


class LanesType(types.Type):
    """What a kernel is specialised on."""

    def __init__(self, width: int, dtype: types.Float, masked: bool) -> None:
        self.width, self.dtype, self.masked = width, dtype, masked
        super().__init__(name=f"Lanes({width}, {dtype}, {masked}, {_STAMP})")


class Lanes:
    """The Python value of a ``LanesType``: it carries no data."""

    def __init__(self, width: int, dtype: types.Float, masked: bool) -> None:
        self.width = width
        self._numba_type_ = LanesType(width, dtype, masked)


class Vector(types.Type):
    """``width`` numbers in registers."""

    def __init__(self, width: int, dtype: types.Float) -> None:
        self.width, self.dtype = width, dtype
        super().__init__(name=f"Vector({width}, {dtype})")


register_model(LanesType)(models.OpaqueModel)


@typeof_impl.register(Lanes)
def _typeof_lanes(value, context):
    return value._numba_type_


@unbox(LanesType)
def _unbox_lanes(kind, value, c):
    return NativeValue(c.context.get_dummy_value())


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, kind: Vector) -> None:
        super().__init__(manager, kind, _llvm(kind.width, kind.dtype))


def _llvm(width: int, dtype: types.Float) -> ir.VectorType:
    return ir.VectorType(_scalar(dtype), width)


def _scalar(dtype: types.Float) -> ir.Type:
    return ir.FloatType() if dtype == types.float32 else ir.DoubleType()


def _suffix(vector: ir.VectorType) -> str:
    return f"v{vector.count}f{32 if isinstance(vector.element, ir.FloatType) else 64}"


def _bytes(dtype: types.Float) -> int:
    return dtype.bitwidth // 8


def _call(builder, name, result, arguments):
    kinds = [argument.type for argument in arguments]
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, kinds), name)
    return builder.call(function, arguments)


def _place(context, builder, array_type, array, index):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


def _mask(builder, width, count):
    integer = ir.IntType(64)
    numbers = ir.Constant(ir.VectorType(integer, width), list(range(width)))
    return builder.icmp_unsigned("<", numbers, _broadcast(builder, count, integer, width))


def _broadcast(builder, value, element, width):
    vector = ir.VectorType(element, width)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), zeros)


def _cast(builder, value, source, target, width):
    if source == target:
        return value
    change = builder.fpext if source == types.float32 else builder.fptrunc
    return change(value, _llvm(width, target))


def _emit_load(context, builder, lanes, array_type, array, index, count):
    place = _place(context, builder, array_type, array, index)
    vector = _llvm(lanes.width, array_type.dtype)
    align = _bytes(array_type.dtype)
    if count is None or not lanes.masked:
        value = builder.load(place, typ=vector, align=align)
    else:
        mask = _mask(builder, lanes.width, count)
        zero = ir.Constant(vector, [0.0] * lanes.width)
        place = builder.bitcast(place, _BYTES)
        arguments = [place, ir.IntType(32)(align), mask, zero]
        value = _call(builder, f"llvm.masked.load.{_suffix(vector)}.p0", vector, arguments)
    return _cast(builder, value, array_type.dtype, lanes.dtype, lanes.width)


def _emit_store(context, builder, lanes, array_type, array, index, value, source, count):
    place = _place(context, builder, array_type, array, index)
    value = _cast(builder, value, source, array_type.dtype, lanes.width)
    align = _bytes(array_type.dtype)
    if count is None or not lanes.masked:
        builder.store(value, builder.bitcast(place, value.type.as_pointer()), align=align)
        return
    mask = _mask(builder, lanes.width, count)
    arguments = [value, builder.bitcast(place, _BYTES), ir.IntType(32)(align), mask]
    _call(builder, f"llvm.masked.store.{_suffix(value.type)}.p0", ir.VoidType(), arguments)


@intrinsic
def load(typing, lanes, array, index):
    """A whole vector from ``array``, converted to the precision of the lanes."""

    def generate(context, builder, sig, args):
        return _emit_load(context, builder, lanes, array, args[1], args[2], None)

    return Vector(lanes.width, lanes.dtype)(lanes, array, types.intp), generate


@intrinsic
def load_some(typing, lanes, array, index, count):
    """The first ``count`` lanes and zeros beyond where the lanes are masked, a whole vector where they are not."""

    def generate(context, builder, sig, args):
        return _emit_load(context, builder, lanes, array, args[1], args[2], args[3])

    return Vector(lanes.width, lanes.dtype)(lanes, array, types.intp, types.intp), generate


@intrinsic
def store(typing, lanes, array, index, value):
    """A whole vector to ``array``, converted to its dtype."""

    def generate(context, builder, sig, args):
        _emit_store(context, builder, lanes, array, args[1], args[2], args[3], value.dtype, None)

    return types.void(lanes, array, types.intp, value), generate


@intrinsic
def store_some(typing, lanes, array, index, value, count):
    """The first ``count`` lanes where the lanes are masked, a whole vector where they are not."""

    def generate(context, builder, sig, args):
        _emit_store(context, builder, lanes, array, args[1], args[2], args[3], value.dtype, args[4])

    return types.void(lanes, array, types.intp, value, types.intp), generate


@intrinsic
def splat(typing, lanes, value):
    """The same number in every lane."""

    def generate(context, builder, sig, args):
        return _broadcast(builder, args[1], _scalar(lanes.dtype), lanes.width)

    return Vector(lanes.width, lanes.dtype)(lanes, lanes.dtype), generate


@intrinsic
def width(typing, lanes):
    """The number of lanes, known to the compiler."""

    def generate(context, builder, sig, args):
        return context.get_constant(types.intp, lanes.width)

    return types.intp(lanes), generate


@intrinsic
def fma(typing, a, b, c):
    """a * b + c in one rounding, where the machine has it."""

    def generate(context, builder, sig, args):
        return _call(builder, f"llvm.fmuladd.{_suffix(args[0].type)}", args[0].type, list(args))

    return a(a, a, a), generate


@intrinsic
def magnitude(typing, a):
    def generate(context, builder, sig, args):
        return _call(builder, f"llvm.fabs.{_suffix(args[0].type)}", args[0].type, list(args))

    return a(a), generate


@intrinsic
def larger(typing, a, b):
    """The larger of two magnitudes; NaN is larger than anything: the order of the bits of numbers that are not negative."""

    def generate(context, builder, sig, args):
        bits = ir.VectorType(ir.IntType(a.dtype.bitwidth), a.width)
        left, right = (builder.bitcast(value, bits) for value in args)
        name = f"llvm.umax.v{a.width}i{a.dtype.bitwidth}"
        return builder.bitcast(_call(builder, name, bits, [left, right]), args[0].type)

    return a(a, a), generate


@intrinsic
def where_negative(typing, condition, a, b):
    """``a`` where the condition is below zero, ``b`` elsewhere and where it is NaN."""

    def generate(context, builder, sig, args):
        zero = ir.Constant(args[0].type, [0.0] * condition.width)
        return builder.select(builder.fcmp_ordered("<", args[0], zero), args[1], args[2])

    return condition(condition, condition, condition), generate


@intrinsic
def where_at_most(typing, a, b, yes, no):
    """``yes`` where a <= b, ``no`` elsewhere and where one of them is NaN."""

    def generate(context, builder, sig, args):
        return builder.select(builder.fcmp_ordered("<=", args[0], args[1]), args[2], args[3])

    return a(a, a, a, a), generate


@intrinsic
def root(typing, a):
    def generate(context, builder, sig, args):
        return _call(builder, f"llvm.sqrt.{_suffix(args[0].type)}", args[0].type, list(args))

    return a(a), generate


@intrinsic
def any_lane(typing, a):
    """Whether any lane is not zero."""

    def generate(context, builder, sig, args):
        number = ir.IntType(a.dtype.bitwidth)
        bits = builder.bitcast(args[0], ir.VectorType(number, a.width))
        name = f"llvm.vector.reduce.or.v{a.width}i{a.dtype.bitwidth}"
        return builder.icmp_unsigned("!=", _call(builder, name, number, [bits]), number(0))

    return types.boolean(a), generate


@intrinsic
def in_double(typing, lanes):
    """The same lanes in double precision."""

    def generate(context, builder, sig, args):
        return context.get_dummy_value()

    return LanesType(lanes.width, types.float64, lanes.masked)(lanes), generate


@intrinsic
def doubled(typing, a):
    """A vector in double precision."""

    def generate(context, builder, sig, args):
        return _cast(builder, args[0], a.dtype, types.float64, a.width)

    return Vector(a.width, types.float64)(a), generate


@intrinsic
def at(typing, array, index):
    """One number of an array; integers come out as wide as a pointer."""
    integer = isinstance(array.dtype, types.Integer)
    result = types.intp if integer else array.dtype

    def generate(context, builder, sig, args):
        value = builder.load(_place(context, builder, array, *args))
        return context.cast(builder, value, array.dtype, result) if integer else value

    return result(array, types.intp), generate


@intrinsic
def put(typing, array, index, value):
    """One number into an array."""

    def generate(context, builder, sig, args):
        builder.store(args[2], _place(context, builder, array, args[0], args[1]))

    return types.void(array, types.intp, array.dtype), generate


def _emit_prefetch(context, builder, array, args, keep):
    place = builder.bitcast(_place(context, builder, array, *args), _BYTES)
    number = ir.IntType(32)
    read, data = number(0), number(1)
    _call(builder, "llvm.prefetch.p0", ir.VoidType(), [place, read, number(keep), data])


@intrinsic
def prefetch(typing, array, index):
    """Ask for a place in memory that is read soon."""

    def generate(context, builder, sig, args):
        _emit_prefetch(context, builder, array, args, 3)

    return types.void(array, types.intp), generate


@intrinsic
def prefetch_once(typing, array, index):
    """Ask for a place that is read soon and then not again, so that it takes no room from what is."""

    def generate(context, builder, sig, args):
        _emit_prefetch(context, builder, array, args, 0)

    return types.void(array, types.intp), generate


@intrinsic
def take(typing, counter):
    """The next task of a counter that several threads share."""

    def generate(context, builder, sig, args):
        place = _place(context, builder, counter, args[0], context.get_constant(types.intp, 0))
        return builder.atomic_rmw("add", place, ir.IntType(64)(1), "monotonic")

    return types.int64(counter), generate


@intrinsic
def raise_to(typing, array, index, value):
    """array[index] = max(array[index], value), whichever thread comes first."""

    def generate(context, builder, sig, args):
        place = _place(context, builder, array, args[0], args[1])
        builder.atomic_rmw("max", place, args[2], "monotonic")

    return types.void(array, types.intp, types.int64), generate


@intrinsic
def misalignment(typing, array):
    """Elements to skip until the array's data starts a cache line of 64 bytes."""

    def generate(context, builder, sig, args):
        data = context.make_array(array)(context, builder, args[0]).data
        integer = ir.IntType(64)
        missing = builder.and_(builder.neg(builder.ptrtoint(data, integer)), integer(63))
        return builder.udiv(missing, integer(_bytes(array.dtype)))

    return types.intp(array), generate


def _arithmetic(function, instruction: str) -> None:
    @infer_global(function)
    class Template(AbstractTemplate):
        def generic(self, args, kws):
            if not kws and len(args) == 2 and isinstance(args[0], Vector) and args[0] == args[1]:
                return signature(args[0], *args)

    @lower_builtin(function, Vector, Vector)
    def generate(context, builder, sig, args):
        return getattr(builder, instruction)(*args)


for _function, _instruction in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul"), (operator.truediv, "fdiv")):
    _arithmetic(_function, _instruction)
