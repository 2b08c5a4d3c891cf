// NF4: tables, layouts, encoding and decoding.
#include "weft/kernels/nf4.h"

#include <algorithm>
#include <cmath>

namespace weft::nf4 {
namespace {

constexpr int64_t kBlocksAtOnce = 1 << 12;  // read together

// The nearest of an ascending table.
template <size_t N>
uint8_t nearest(const std::array<float, N>& table, float x) {
  const auto above = std::ranges::lower_bound(table, x);
  if (above == table.begin()) return 0;
  const auto i = size_t(above - table.begin());
  if (above == table.end()) return uint8_t(N - 1);
  return uint8_t(x - table[i - 1] <= table[i] - x ? i - 1 : i);
}

// Values between two neighbours of kTable belong to the nearer one.
constexpr auto kBounds = [] {
  std::array<float, 15> bounds{};
  for (size_t i = 0; i < bounds.size(); ++i) bounds[i] = (kTable[i] + kTable[i + 1]) / 2;
  return bounds;
}();

std::byte code_of(float x) {
  int code = 0;
  for (const float bound : kBounds) code += x > bound;
  return std::byte(code);
}

}  // namespace

Layout::Layout(const Shape& whole, int64_t first_row, int64_t rows, int64_t first_col, int64_t cols)
    : whole_rows_(whole[0]),
      whole_cols_(whole[1]),
      first_row_(first_row),
      rows_(rows),
      first_col_(first_col),
      cols_(cols),
      run_rows_(rows),
      shares_blocks_(cols == whole_cols_) {
  count_row_blocks();
}

Layout Layout::of_stack(const Shape& whole, const Shape& here, std::span<const int64_t> first) {
  const int64_t rows = whole[1];
  Layout l({whole[0] * rows, whole[2]}, first[0] * rows + first[1], here[0] * here[1], first[2], here[2]);
  if (here[1] == rows) return l;
  l.run_rows_ = here[1], l.run_stride_ = rows, l.shares_blocks_ = false;
  l.count_row_blocks();
  return l;
}

Layout Layout::part(int64_t row, int64_t rows) const {
  Layout l = *this;
  l.first_row_ = whole_row(row), l.rows_ = l.run_rows_ = rows;
  l.count_row_blocks();
  return l;
}

void Layout::count_row_blocks() {
  if (rows_ == 0 || cols_ == 0)
    row_blocks_ = 0;
  else if (shares_blocks_)
    row_blocks_ = num_blocks(whole_index(rows_, 0)) - first_block(0);
  else if (whole_cols_ % kBlock == 0)
    row_blocks_ = num_blocks(first_col_ + cols_) - first_col_ / kBlock;
  else
    row_blocks_ = num_blocks(kBlock - 1 + cols_);  // wherever in its first block a row begins
}

void Layout::each_run(int64_t begin, int64_t end, FunctionRef<void(int64_t, int64_t, int64_t, int64_t)> visit) const {
  for (int64_t block = begin; block < end; ++block) {
    const int64_t row = shares_blocks_ ? 0 : block / row_blocks_, start = whole_block(block) * kBlock;
    const int64_t last = shares_blocks_ ? whole_index(rows_, 0) : whole_index(row, cols_);
    const int64_t from = std::max(start, whole_index(row, 0)), to = std::min(start + kBlock, last);
    if (from < to) visit(block, from - start, from, to - from);
  }
}

float scale_of(const std::byte* block, int64_t whole_block, const Tensor& scales) {
  const float* const s = scales.data<float>();
  return kScaleTable[size_t(block[kBlock / 2])] * s[whole_block / kBlocksPerGroup] + s[scales.numel() - 1];
}

void Matrix::decode(int64_t row, int64_t num_rows, int64_t col, int64_t num_cols, float* out) const {
  const auto* const bytes = static_cast<const std::byte*>(blocks.raw());
  for (int64_t r = row; r < row + num_rows; ++r)
    for (int64_t c = col; c < col + num_cols;) {
      const Layout::Place at = layout->place(r, c);
      const int64_t count = std::min(kBlock - at.offset, col + num_cols - c);
      const std::byte* const block = bytes + at.block * kBlockBytes;
      decode_block(block, nf4::scale_of(block, layout->whole_block(at.block), scales), at.offset, count, out);
      out += count, c += count;
    }
}

Matrix Stack::operator[](int64_t i) const {
  const Layout& one = matrices[size_t(i)];
  const int64_t first = layout->first_block_of(i * one.rows());
  return {blocks.slice_flat(first * kBlockBytes, {one.bytes()}), scales, &one};
}

void decode_block(const std::byte* block, float scale, int64_t offset, int64_t count, float* out) {
  std::array<float, 16> values;
  for (size_t i = 0; i < values.size(); ++i) values[i] = kTable[i] * scale;
  const auto high = [&](int64_t i) { return values[size_t(block[i] >> 4)]; };
  const auto low = [&](int64_t i) { return values[size_t(block[i] & std::byte(15))]; };
  int64_t i = offset;
  const int64_t end = offset + count;
  if (i % 2 == 1 && i < end) *out++ = low(i++ / 2);
  for (; i + 2 <= end; i += 2) *out++ = high(i / 2), *out++ = low(i / 2);
  if (i < end) *out = high(i / 2);
}

Encoder::Encoder(int64_t numel, Read read) : numel_(numel) {
  find_largest(read);
  double sum = 0;
  for (const float x : largest_) sum += double(x);
  const auto offset = float(sum / double(std::max<size_t>(largest_.size(), 1)));
  scales_.assign(size_t(num_groups(numel)), 0);
  for (size_t b = 0; b < largest_.size(); ++b) {
    float& s = scales_[b / size_t(kBlocksPerGroup)];
    s = std::max(s, std::abs(largest_[b] - offset));
  }
  scales_.push_back(offset);
  choose_codes();
}

Encoder::Encoder(int64_t numel, std::span<const float> scales, Read read)
    : numel_(numel), scales_(scales.begin(), scales.end()) {
  check(int64_t(scales.size()) == num_groups(numel) + 1, "{} scales of {} elements", scales.size(), numel);
  find_largest(read);
  choose_codes();
}

void Encoder::find_largest(Read read) {
  largest_.assign(size_t(num_blocks(numel_)), 0);
  std::vector<float> values;
  for (int64_t first = 0; first < numel_; first += kBlocksAtOnce * kBlock) {
    values.resize(size_t(std::min(kBlocksAtOnce * kBlock, numel_ - first)));
    read(first, values);
    for (size_t i = 0; i < values.size(); ++i) {
      float& largest = largest_[size_t(first / kBlock) + i / size_t(kBlock)];
      largest = std::max(largest, std::abs(values[i]));
    }
  }
}

// The nearest code, but of none below zero, which would turn a block's signs round.
void Encoder::choose_codes() {
  const float offset = scales_.back();
  codes_.resize(largest_.size());
  for (size_t b = 0; b < largest_.size(); ++b) {
    const float s = scales_[b / size_t(kBlocksPerGroup)];
    uint8_t code = nearest(kScaleTable, s > 0 ? (largest_[b] - offset) / s : 0.0f);
    while (code < 255 && kScaleTable[code] * s + offset < 0) ++code;
    codes_[b] = code;
  }
}

void Encoder::encode(const Layout& layout, int64_t begin, int64_t end, Read read, std::byte* out) const {
  std::vector<float> values;
  int64_t from = 0, to = 0;  // of the whole: what `values` has
  for (int64_t block = begin; block < end; ++block, out += kBlockBytes) {
    const int64_t b = layout.whole_block(block), first = b * kBlock, last = std::min(first + kBlock, numel_);
    std::fill_n(out, kBlockBytes, std::byte{});
    if (first >= last) continue;  // a row that needs fewer blocks than the longest
    if (first < from || last > to) {
      from = first, to = std::min(first + (end - block) * kBlock, numel_);
      to = std::min(to, from + kBlocksAtOnce * kBlock);
      values.resize(size_t(to - from));
      read(from, values);
    }
    const float inverse = largest_[size_t(b)] > 0 ? 1 / largest_[size_t(b)] : 0;
    for (int64_t i = first; i < last; ++i)
      out[(i - first) / 2] |= code_of(values[size_t(i - from)] * inverse) << (i % 2 == 0 ? 4 : 0);
    out[kBlock / 2] = std::byte(codes_[size_t(b)]);
  }
}

}  // namespace weft::nf4
