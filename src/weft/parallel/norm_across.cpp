// norm_across: every rank gets all columns, normalises them and keeps its own.
#include "weft/parallel/norm_across.h"

#include "weft/parallel/gradient_or_zeros.h"

namespace weft {
namespace {

// Copies the columns of a cut between a matrix that has all and one that has these.
void copy_columns(Stream& stream, const Tensor& whole, const Tensor& mine, const Cut& cut, bool is_to_whole) {
  const size_t element = size_of(whole.dtype()), bytes = size_t(cut.count) * element;
  const RowsAt all{whole, size_t(cut.begin) * element, size_t(cut.total) * element}, some{mine, 0, bytes};
  is_to_whole ? stream.copy_rows(all, some, mine.dim(0), bytes) : stream.copy_rows(some, all, mine.dim(0), bytes);
}

// The columns of all ranks; backward, the sum of what the ranks say of this rank's.
struct GatherColumnsOp {
  static constexpr std::string_view kName = "tp_gather_columns";
  static constexpr bool kAlwaysBackward = true;
  Communicator& group;
  Cut cut;
  bool is_first;
  Shape whole = {};
  DType dtype = {};

  Tensor forward(Context& context, const Tensor& x) {
    whole = {x.dim(0), cut.total}, dtype = x.dtype();
    Tensor y = gradient_or_zeros(context, {}, dtype, whole);
    if (is_first) copy_columns(context.stream, y, x, cut, true);
    group.all_reduce(y);
    return y;
  }
  Tensor backward(Context& context, const Tensor& dy) {
    const Tensor sum = context.empty(dtype, whole);
    context.kernels.convert(context.stream, sum, gradient_or_zeros(context, dy, dtype, whole));
    group.all_reduce(sum);
    Tensor dx = gradient_or_zeros(context, {}, dtype, {whole[0], cut.count});
    if (is_first) copy_columns(context.stream, sum, dx, cut, false);
    return dx;
  }
};

struct TakeColumnsOp {
  static constexpr std::string_view kName = "tp_take_columns";
  Cut cut;

  Tensor forward(Context& context, const Tensor& x) {
    Tensor y = context.empty(x.dtype(), {x.dim(0), cut.count});
    copy_columns(context.stream, x, y, cut, false);
    return y;
  }
  Tensor backward(Context& context, const Tensor& dy) {
    Tensor dx = gradient_or_zeros(context, {}, dy.dtype(), {dy.dim(0), cut.total});
    copy_columns(context.stream, dx, dy, cut, true);
    return dx;
  }
};

}  // namespace

Var norm_across(const TensorParallel& tensor, const Cut& columns, bool is_first, const Var& x,
                FunctionRef<Var(const Var&)> normalise) {
  if (tensor.size() == 1) return normalise(x);
  const Var all = apply(*x.context, GatherColumnsOp{tensor.group(), columns, is_first}, x);
  return apply(*x.context, TakeColumnsOp{columns}, normalise(all));
}

}  // namespace weft
