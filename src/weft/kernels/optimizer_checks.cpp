// Shape checks of the optimizers' kernels.
#include "weft/kernels/block_codes.h"
#include "weft/kernels/shape_checks.h"

namespace weft::shapes {
namespace {

void check_dtype(std::string_view op, std::string_view what, const Tensor& t, DType dtype, int64_t count) {
  if (!t || t.dtype() != dtype || t.numel() != count)
    throw Error("{}: {} is {}, but must hold {} of {}", op, what,
                t ? fmt::format("{} {}", name_of(t.dtype()), t.shape()) : "missing", count, name_of(dtype));
}

// A master with its value, and what is of the dtype that it has when it is whole.
void check_state(std::string_view op, const Tensor& master, const Tensor& value, std::initializer_list<Named> like) {
  const bool is_split = master && master.dtype() == DType::u16;
  if (!master || (master.dtype() != DType::f32 && master.dtype() != DType::f64 && !is_split))
    throw Error("{}: master must hold f32, f64 or halves of f32, u16", op);
  for (const auto& [name, t] : like) check_dtype(op, name, t, is_split ? DType::f32 : master.dtype(), master.numel());
  if (is_split) return check_dtype(op, "value", value, DType::bf16, master.numel());
  if (value && (!is_float(value.dtype()) || value.numel() != master.numel()))
    throw Error("{}: value is {} {}, but must hold {} floats", op, name_of(value.dtype()), value.shape(),
                master.numel());
}

// The same with a gradient, which may also be of the value's dtype.
void check_adamw_state(std::string_view op, const AdamWArgs& args) {
  check_state(op, args.master, args.value, {});
  if (args.grad && args.value && args.grad.dtype() == args.value.dtype())
    check_dtype(op, "grad", args.grad, args.value.dtype(), args.master.numel());
  else
    check_state(op, args.master, args.value, {{"grad", args.grad}});
  if (args.bias_correction1 <= 0 || args.bias_correction2 <= 0)
    throw Error("{}: the bias corrections are 1 - beta^step, which is positive from step 1 on", op);
}

}  // namespace

void check_halves(std::string_view op, const Tensor& upper, const Tensor& lower, const Tensor& x) {
  if (!x) throw Error("{}: x is missing, but is not optional", op);
  check_dtype(op, "x", x, DType::f32, x.numel());
  check_dtype(op, "upper", upper, DType::bf16, x.numel());
  check_dtype(op, "lower", lower, DType::u16, x.numel());
}

void check_adamw(const AdamWArgs& args) {
  check_adamw_state("adamw", args);
  check_state("adamw", args.master, args.value, {{"m", args.m}, {"v", args.v}});
}

void check_adamw8(const AdamW8Args& args) {
  check_adamw_state("adamw8", args.adamw);
  const int64_t n = args.adamw.master.numel(), blocks = block_codes::num_blocks(n);
  check_dtype("adamw8", "m", args.m, DType::u8, n);
  check_dtype("adamw8", "v", args.v, DType::u8, n);
  check_dtype("adamw8", "m_scale", args.m_scale, DType::f32, blocks);
  check_dtype("adamw8", "v_scale", args.v_scale, DType::f32, blocks);
}

void check_sgd(const SgdArgs& args) {
  check_state("sgd", args.master, args.value, {{"grad", args.grad}});
  if (args.m) check_state("sgd", args.master, args.value, {{"m", args.m}});
}

void check_lion(const LionArgs& args) {
  check_state("lion", args.master, args.value, {{"m", args.m}, {"grad", args.grad}});
}

void check_blocks(std::string_view op, const Tensor& codes, const Tensor& scales, const Tensor& x) {
  if (!x) throw Error("{}: x is missing, but is not optional", op);
  check_dtype(op, "x", x, DType::f32, x.numel());
  check_dtype(op, "codes", codes, DType::u8, x.numel());
  check_dtype(op, "scales", scales, DType::f32, block_codes::num_blocks(x.numel()));
}

void check_matrix_piece(std::string_view op, const MatrixPiece& p) {
  if (!p.x || (p.x.dtype() != DType::f32 && p.x.dtype() != DType::f64)) throw Error("{}: x must hold f32 or f64", op);
  if (!p.rows || !p.cols || p.rows.dtype() != p.x.dtype() || p.cols.dtype() != p.x.dtype())
    throw Error("{}: rows and cols must hold {}", op, name_of(p.x.dtype()));
  if (p.first < 0 || p.first + p.x.numel() > p.rows.numel() * p.cols.numel())
    throw Error("{}: elements {}+{} are not inside a matrix of {} x {}", op, p.first, p.x.numel(), p.rows.numel(),
                p.cols.numel());
}

void check_factor_moment(const FactorMomentArgs& args) {
  check_state("factor_moment", args.moment, {}, {{"sums", args.sums}});
}

void check_adafactor(const AdafactorArgs& args) {
  check_state("adafactor", args.master, args.value, {{"grad", args.grad.x}});
  check_matrix_piece("adafactor", args.grad);
}

}  // namespace weft::shapes
