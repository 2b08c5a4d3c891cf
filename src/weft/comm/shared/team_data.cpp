// SharedMemoryTeam: how data moves once the ranks have met.
#include <algorithm>
#include <cstring>

#include "weft/comm/shared/reduce.h"
#include "weft/comm/shared/team.h"

namespace weft {
namespace {

constexpr size_t kSliced = 256 << 10;  // bytes of an all_reduce below which every rank takes one slice
constexpr size_t kChunk = 256 << 10;   // above: what an idle rank takes next

void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes && to != from) std::memcpy(to, from, bytes);
}

size_t round_up(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

void SharedMemoryTeam::reduce_ins(const Collective& call, std::byte* out, size_t bytes) const {
  reduce(call.dtype, call.reduction, {&out, 1}, ins_, int64_t(bytes / size_of(call.dtype)));
}

void SharedMemoryTeam::run_in_board(const Collective& call) {
  const auto payload = [&](int r) { return board_.seat(r).payload[parity()]; };
  switch (call.op) {
    case CommOp::all_reduce:
    case CommOp::reduce_scatter: {
      const size_t offset = call.op == CommOp::all_reduce ? 0 : size_t(rank_) * call.bytes;
      for (int r = 0; r < size_; ++r) ins_[size_t(r)] = payload(r) + offset;
      return reduce_ins(call, call.out, call.bytes);
    }
    case CommOp::broadcast:
      if (rank_ != call.peer) copy_bytes(call.out, payload(call.peer), call.bytes);
      return;
    case CommOp::barrier: return;
    default:
      for (int r = 0; r < size_; ++r) copy_bytes(call.out + size_t(r) * call.bytes, payload(r), call.bytes);
  }
}

void SharedMemoryTeam::run_directly(const Collective& call) {
  const auto other = [&](int r) { return r == rank_ ? call.in : host_.resolve(r, post_by(r).in); };
  switch (call.op) {
    case CommOp::all_reduce: return all_reduce_in_place(call);
    case CommOp::reduce_scatter:
      for (int r = 0; r < size_; ++r) ins_[size_t(r)] = other(r) + size_t(rank_) * call.bytes;
      return reduce_ins(call, call.out, call.bytes);
    case CommOp::broadcast:
      if (rank_ != call.peer) copy_bytes(call.out, other(call.peer), call.bytes);
      return;
    case CommOp::all_to_all: return exchange_rows(call);
    default:
      for (int i = 0; i < size_; ++i) {
        const int r = (rank_ + i) % size_;  // each rank begins elsewhere
        copy_bytes(call.out + size_t(r) * call.bytes, other(r), call.bytes);
      }
  }
}

// Each part is reduced by one rank, whichever, and written to all: every rank gets the same bits.
void SharedMemoryTeam::all_reduce_in_place(const Collective& call) {
  const bool is_sliced = call.bytes <= kSliced;
  const size_t slice = is_sliced ? round_up((call.bytes + size_t(size_) - 1) / size_t(size_)) : kChunk;
  const auto reduce_slice = [&](size_t index) {
    const size_t begin = std::min(index * slice, call.bytes), bytes = std::min(slice, call.bytes - begin);
    for (int r = 0; r < size_; ++r) {
      outs_[size_t(r)] = (r == rank_ ? call.out : host_.resolve(r, post_by(r).in)) + begin;
      ins_[size_t(r)] = outs_[size_t(r)];
    }
    reduce(call.dtype, call.reduction, outs_, ins_, int64_t(bytes / size_of(call.dtype)));
  };
  if (is_sliced) return reduce_slice(size_t(rank_));
  std::atomic<int64_t>& next = board_.header().next_chunk;
  for (size_t i; (i = size_t(next.fetch_add(1, std::memory_order_relaxed))) * slice < call.bytes;) reduce_slice(i);
}

size_t SharedMemoryTeam::bytes_between(int from, int to) const {
  return size_t(board_.in_counts(from, parity())[size_t(to)]) * post_by(from).row_bytes;
}

void SharedMemoryTeam::exchange_rows(const Collective& call) {
  std::byte* out = call.out;
  for (int from = 0; from < size_; ++from) {
    const size_t bytes = bytes_between(from, rank_);
    if (!bytes) continue;
    size_t offset = 0;
    for (int to = 0; to < rank_; ++to) offset += bytes_between(from, to);
    const std::byte* const in = from == rank_ ? call.in : host_.resolve(from, post_by(from).in);
    copy_bytes(out, in + offset, bytes);
    out += bytes;
  }
}

// ---- tensors that other ranks cannot see ----

void SharedMemoryTeam::run_staged(const Collective& call) {
  if (call.op == CommOp::reduce_scatter || call.op == CommOp::all_to_all) return stage_parts(call);
  stage_flat(call);
}

void SharedMemoryTeam::stage_flat(const Collective& call) {
  const bool has_data = call.op != CommOp::broadcast || rank_ == call.peer;
  int64_t half = 0;
  for (size_t begin = 0; begin < call.bytes; begin += board_.stage_bytes(), half ^= 1) {
    const size_t bytes = std::min(board_.stage_bytes(), call.bytes - begin);
    if (has_data) copy_bytes(board_.stage(rank_, half), call.in + begin, bytes);
    meet(call);
    for (int r = 0; r < size_; ++r) {
      const std::byte* const data = board_.stage(r, half);
      ins_[size_t(r)] = data;
      if (call.op == CommOp::all_gather) copy_bytes(call.out + size_t(r) * call.bytes + begin, data, bytes);
      if (call.op == CommOp::broadcast && r == call.peer && r != rank_) copy_bytes(call.out + begin, data, bytes);
    }
    if (call.op == CommOp::all_reduce) reduce_ins(call, call.out + begin, bytes);
  }
}

// The stage is cut into one part for each receiver.
void SharedMemoryTeam::stage_parts(const Collective& call) {
  const bool is_reduction = call.op == CommOp::reduce_scatter;
  const auto total = [&](int from, int to) { return is_reduction ? call.bytes : bytes_between(from, to); };
  const size_t part = board_.stage_bytes() / size_t(size_) / 64 * 64;
  size_t longest = 0;
  for (int from = 0; from < size_; ++from)
    for (int to = 0; to < size_; ++to) longest = std::max(longest, total(from, to));
  int64_t half = 0;
  for (size_t begin = 0; begin < longest; begin += part, half ^= 1) {
    const auto left = [&](int from, int to) {
      return std::min(part, total(from, to) - std::min(begin, total(from, to)));
    };
    const std::byte* in = call.in;
    for (int to = 0; to < size_; ++to) {
      copy_bytes(board_.stage(rank_, half) + size_t(to) * part, in + begin, left(rank_, to));
      in += total(rank_, to);
    }
    meet(call);
    std::byte* out = call.out;
    for (int from = 0; from < size_; ++from) {
      const std::byte* const data = board_.stage(from, half) + size_t(rank_) * part;
      ins_[size_t(from)] = data;
      if (is_reduction) continue;
      copy_bytes(out + begin, data, left(from, rank_));
      out += total(from, rank_);
    }
    if (is_reduction) reduce_ins(call, call.out + begin, left(0, rank_));
  }
}

}  // namespace weft
