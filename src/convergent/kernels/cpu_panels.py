"""Dense blocks with the heads innermost, in vectors that hold several columns.

A number of a block is a group of ``width(narrow)`` heads. A vector of ``width(wide)`` numbers holds one or more neighbouring
columns, so that one head fills the registers as well as many do: what belongs to a whole row is repeated for each column.
"""

from __future__ import annotations

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from convergent.kernels.lanes import Vector, _call, _llvm, _place, _suffix

REGISTER = 8 if binding.get_host_cpu_features().get("avx512f", False) else 4  # numbers of double precision
HIGH, LONG = 4, 4 if REGISTER == 8 else 2  # rows and vectors of a tile whose sums stay in registers


def _repeated(builder, value, width):
    count = value.type.count
    if count == width:
        return value
    places = ir.Constant(ir.VectorType(ir.IntType(32), width), [lane % count for lane in range(width)])
    return builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), places)


def _folded(builder, value, width):
    while value.type.count > width:
        half = value.type.count // 2
        kind = ir.VectorType(ir.IntType(32), half)
        nothing = ir.Constant(value.type, ir.Undefined)
        low = builder.shuffle_vector(value, nothing, ir.Constant(kind, list(range(half))))
        high = builder.shuffle_vector(value, nothing, ir.Constant(kind, list(range(half, 2 * half))))
        value = builder.fadd(low, high)
    return value


@intrinsic
def repeat(typing, wide, value):
    """The heads of one number, for every column of a vector."""

    def generate(context, builder, sig, args):
        return _repeated(builder, args[1], wide.width)

    return Vector(wide.width, wide.dtype)(wide, value), generate


@intrinsic
def fold(typing, narrow, value):
    """The sum over the columns of a vector."""

    def generate(context, builder, sig, args):
        return _folded(builder, args[1], narrow.width)

    return Vector(narrow.width, narrow.dtype)(narrow, value), generate


def _load(context, builder, array_type, array, index, width):
    place = _place(context, builder, array_type, array, index)
    return builder.load(place, typ=_llvm(width, array_type.dtype), align=8)


def _store(context, builder, array_type, array, index, value):
    place = _place(context, builder, array_type, array, index)
    builder.store(value, builder.bitcast(place, value.type.as_pointer()), align=8)


def _fma(builder, a, b, c):
    return _call(builder, f"llvm.fmuladd.{_suffix(a.type)}", a.type, [a, b, c])


def _sums(builder, kind, count):
    """Accumulators, which the compiler keeps in registers."""
    slots = [cgutils.alloca_once(builder, kind) for _ in range(count)]
    for slot in slots:
        builder.store(ir.Constant(kind, [0.0] * kind.count), slot)
    return slots


def _product(high: int, long: int):
    """The kernel of a matrix product for a tile of so many rows and vectors."""

    @intrinsic
    def product(typing, narrow, wide, left, first, row_step, left_step, right, second, right_step, depth, out, o, out_step):
        """out[i, v] = sum over k of left[first + i * row_step + k * left_step] * right[second + k * right_step + v]."""
        place = types.intp

        def generate(context, builder, sig, args):
            _, _, left_v, first_v, row_v, left_step_v, right_v, second_v, right_step_v, depth_v, out_v, o_v, out_step_v = args
            kind = _llvm(wide.width, wide.dtype)
            number = ir.IntType(64)
            sums = _sums(builder, kind, high * long)
            with cgutils.for_range(builder, depth_v, intp=number) as loop:
                begin = builder.add(second_v, builder.mul(loop.index, right_step_v))
                columns = [
                    _load(context, builder, right, right_v, builder.add(begin, number(v * wide.width)), wide.width)
                    for v in range(long)
                ]
                begin = builder.add(first_v, builder.mul(loop.index, left_step_v))
                for i in range(high):
                    at_row = builder.add(begin, builder.mul(row_v, number(i)))
                    factor = _repeated(builder, _load(context, builder, left, left_v, at_row, narrow.width), wide.width)
                    for v in range(long):
                        slot = sums[i * long + v]
                        builder.store(_fma(builder, factor, columns[v], builder.load(slot)), slot)
            for i in range(high):
                begin = builder.add(o_v, builder.mul(out_step_v, number(i)))
                for v in range(long):
                    at_vector = builder.add(begin, number(v * wide.width))
                    _store(context, builder, out, out_v, at_vector, builder.load(sums[i * long + v]))
            return context.get_dummy_value()

        arguments = (narrow, wide, left, place, place, place, right, place, place, place, out, place, place)
        return types.void(*arguments), generate

    return product


product_of_tile, product_of_columns = _product(HIGH, LONG), _product(HIGH, 1)
product_of_row, product_of_vector = _product(1, LONG), _product(1, 1)


def _dots(high: int):
    @intrinsic
    def dots(typing, narrow, wide, panel, p, step, x, begin, vectors, out, o):
        """out[i] += sum over the columns of panel[p + i * step] * x, for so many rows."""
        place = types.intp

        def generate(context, builder, sig, args):
            _, _, panel_v, p_v, step_v, x_v, begin_v, vectors_v, out_v, o_v = args
            kind = _llvm(wide.width, wide.dtype)
            number = ir.IntType(64)
            sums = _sums(builder, kind, high)
            with cgutils.for_range(builder, vectors_v, intp=number) as loop:
                offset = builder.mul(loop.index, number(wide.width))
                value = _load(context, builder, x, x_v, builder.add(begin_v, offset), wide.width)
                for i in range(high):
                    at_row = builder.add(builder.add(p_v, offset), builder.mul(step_v, number(i)))
                    row = _load(context, builder, panel, panel_v, at_row, wide.width)
                    builder.store(_fma(builder, row, value, builder.load(sums[i])), sums[i])
            for i in range(high):
                at_row = builder.add(o_v, number(i * narrow.width))
                total = _folded(builder, builder.load(sums[i]), narrow.width)
                old = _load(context, builder, out, out_v, at_row, narrow.width)
                _store(context, builder, out, out_v, at_row, builder.fadd(old, total))
            return context.get_dummy_value()

        return types.void(narrow, wide, panel, place, place, x, place, place, out, place), generate

    return dots


dots_of_rows, dots_of_row = _dots(HIGH), _dots(1)
