// Shape: up to four dimensions of a row-major tensor, held without allocation.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "weft/base/error.h"

namespace weft {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims) : rank_(int(dims.size())) {
    check(rank_ <= kMaxRank, "a tensor has at most {} dims, not {}", kMaxRank, rank_);
    for (int i = 0; i < rank_; ++i) dims_[i] = dims[i];
  }

  int rank() const { return rank_; }
  // Negative indices count from the last dim.
  int64_t operator[](int dim) const { return dims_[dim < 0 ? dim + rank_ : dim]; }
  int64_t& operator[](int dim) { return dims_[dim < 0 ? dim + rank_ : dim]; }
  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[i];
    return n;
  }
  std::span<const int64_t> dims() const { return {dims_.data(), size_t(rank_)}; }
  bool operator==(const Shape&) const = default;

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace weft

// "[2, 3]". Checks are given shapes as they are, so that nothing is written before one fails.
template <>
struct fmt::formatter<weft::Shape> {
  constexpr auto parse(format_parse_context& context) { return context.begin(); }
  auto format(const weft::Shape& shape, format_context& context) const {
    return fmt::format_to(context.out(), "[{}]", fmt::join(shape.dims(), ", "));
  }
};
