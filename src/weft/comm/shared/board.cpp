// Board: header, seats, counts and stages, one after the other.
#include "weft/comm/shared/board.h"

namespace weft {

size_t Board::counts_bytes(int size) { return (size_t(size) * 4 * sizeof(int64_t) + 63) / 64 * 64; }

size_t Board::bytes_for(int size, size_t stage_bytes) {
  return sizeof(Header) + size_t(size) * (sizeof(Seat) + counts_bytes(size) + 2 * stage_bytes);
}

Board::Seat& Board::seat(int rank) const {
  return *reinterpret_cast<Seat*>(memory_ + sizeof(Header) + size_t(rank) * sizeof(Seat));
}

std::span<int64_t> Board::counts(int rank, int row) const {
  std::byte* const all = memory_ + sizeof(Header) + size_t(size_) * sizeof(Seat);
  std::byte* const own = all + size_t(rank) * counts_bytes(size_);
  return {reinterpret_cast<int64_t*>(own) + row * size_, size_t(size_)};
}

std::byte* Board::stage(int rank, int64_t half) const {
  std::byte* const all = memory_ + bytes_for(size_, 0);
  return all + (size_t(rank) * 2 + size_t(half)) * stage_bytes_;
}

}  // namespace weft
