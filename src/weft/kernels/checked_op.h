// Op: what shape checks say of an argument, in the name of one entry of the table.
#pragma once
#include <limits>

#include "weft/kernels/shape_checks.h"

namespace weft::shapes {

// Throws in the name of one op. Messages are formatted only on failure: planning calls these very often.
struct Op {
  std::string_view name;

  void present(std::string_view what, const Tensor& t) const {
    if (!t) throw Error("{}: {} is missing, but is not optional", name, what);
    if (!is_float(t.dtype())) throw Error("{}: {} holds {}, but must hold floats", name, what, name_of(t.dtype()));
  }
  // A pool of rows, of floats or of codes.
  void pool(std::string_view what, const Tensor& t, RowCodes codes) const {
    if (codes == RowCodes::none) return present(what, t);
    if (!t) throw Error("{}: {} is missing, but is not optional", name, what);
    dtype(what, t, DType::u8);
  }
  void absent(std::string_view what, const Tensor& t, std::string_view reason) const {
    if (t) throw Error("{}: {} is given, but {}", name, what, reason);
  }
  void rank(std::string_view what, const Tensor& t, int rank) const {
    present(what, t);
    if (t.shape().rank() != rank) throw Error("{}: {} is {}, but must have {} dims", name, what, t.shape(), rank);
  }
  void shape(std::string_view what, const Tensor& t, const Shape& expected) const {
    present(what, t);
    dims(what, t, expected);
  }
  void dims(std::string_view what, const Tensor& t, const Shape& expected) const {
    if (t.shape() != expected) throw Error("{}: {} is {}, but must be {}", name, what, t.shape(), expected);
  }
  void dtype(std::string_view what, const Tensor& t, DType expected) const {
    if (t.dtype() != expected)
      throw Error("{}: {} holds {}, but must hold {}", name, what, name_of(t.dtype()), name_of(expected));
  }
  void like(std::string_view what, const Tensor& t, const Tensor& model) const {
    shape(what, t, model.shape());
    dtype(what, t, model.dtype());
  }
  // A vector of `count` elements, of any rank: statistics of rows may keep the shape of the rows.
  void count(std::string_view what, const Tensor& t, int64_t count) const {
    present(what, t);
    if (t.numel() != count) throw Error("{}: {} is {}, but must have {} elements", name, what, t.shape(), count);
  }
  // Statistics, losses and gradients of parameters: f64 beside f64, else f32.
  void statistic(std::string_view what, const Tensor& t, int64_t num_elements, const Tensor& x) const {
    count(what, t, num_elements);
    dtype(what, t, x.dtype() == DType::f64 ? DType::f64 : DType::f32);
  }
  void that(bool condition, std::string_view message) const {
    if (!condition) throw Error("{}: {}", name, message);
  }
  // x: a tensor of the kernel. One without data is not looked into, and neither are the indices of its rows.
  void indices(const Tensor& x, std::string_view what, const int32_t* values, int64_t count, int64_t lowest,
               int64_t limit) const {
    if (count && !values) throw Error("{}: {} is null, but must point to {} numbers", name, what, count);
    if (x.device() == Device::meta) return;
    // Without a way out, so that the compiler looks at many at once.
    int32_t least = std::numeric_limits<int32_t>::max(), most = std::numeric_limits<int32_t>::min();
    for (int64_t i = 0; i < count; ++i) least = std::min(least, values[i]), most = std::max(most, values[i]);
    const bool are_inside = count == 0 || (least >= lowest && most < limit);
    for (int64_t i = 0; !are_inside && i < count; ++i)
      if (values[i] < lowest || values[i] >= limit)
        throw Error("{}: {}[{}] is {}, but must be in [{}, {})", name, what, i, values[i], lowest, limit);
  }
  void probability(float p) const {
    if (!(p >= 0 && p < 1)) throw Error("{}: the dropout probability is {}, but must be in [0, 1)", name, p);
  }
};

}  // namespace weft::shapes
