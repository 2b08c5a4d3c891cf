// Post: comparing what the ranks of a group call.
#include "weft/comm/shared/post.h"

#include "weft/base/error.h"

namespace weft {
namespace {

Collective call_of(const Post& post) {
  Collective call;
  call.op = post.op, call.dtype = post.dtype, call.reduction = post.reduction, call.peer = post.peer;
  call.sequence = post.sequence, call.bytes = post.bytes, call.row_bytes = post.row_bytes;
  return call;
}

bool is_same_call(const Post& a, const Post& b) {
  return a.op == b.op && a.dtype == b.dtype && a.reduction == b.reduction && a.peer == b.peer &&
         a.row_bytes == b.row_bytes && (a.bytes == b.bytes || a.op == CommOp::all_to_all);
}

}  // namespace

Post post_of(const Collective& call, Location in) {
  return {call.op, call.dtype, call.reduction, call.peer, call.sequence, call.bytes, call.row_bytes, in};
}

void compare_posts(int size, FunctionRef<const Post&(int)> post, std::string_view label) {
  const Post& first = post(0);
  for (int r = 1; r < size; ++r) {
    const Post& other = post(r);
    if (is_same_call(first, other)) [[likely]]
      continue;
    throw Error(
        "rank 0 calls {}, rank {} calls {} (group {}, call {}); every rank of a group must make the same calls",
        describe(call_of(first)), r, describe(call_of(other)), label, first.sequence);
  }
}

void compare_counts(int size, FunctionRef<std::span<const int64_t>(int)> out_counts,
                    FunctionRef<std::span<const int64_t>(int)> in_counts, std::string_view label) {
  for (int from = 0; from < size; ++from)
    for (int to = 0; to < size; ++to) {
      const int64_t sent = in_counts(from)[size_t(to)], expected = out_counts(to)[size_t(from)];
      if (sent != expected)
        throw Error("all_to_all (group {}): rank {} sends {} rows to rank {}, which expects {}", label, from, sent,
                    to, expected);
    }
}

}  // namespace weft
