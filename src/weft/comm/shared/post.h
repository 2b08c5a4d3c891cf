// Post: what a rank announces before a collective, so that ranks that call different things learn of it.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "weft/base/function_ref.h"
#include "weft/comm/collective.h"

namespace weft {

// Where a rank's tensor lies, in terms that another rank can resolve.
struct Location {
  static constexpr int64_t kPrivate = -1;  // other ranks cannot see it
  int64_t region = kPrivate;
  int64_t offset = 0;
};

struct Post {
  CommOp op;
  DType dtype;
  Reduction reduction;
  int32_t peer;
  int64_t sequence;
  uint64_t bytes;
  uint64_t row_bytes;
  Location in;
};

Post post_of(const Collective& call, Location in);

// Throws Error, the same on every rank, unless all posts are for the same call. `label` names the group.
void compare_posts(int size, FunctionRef<const Post&(int rank)> post, std::string_view label);

// Likewise, unless every rank expects the rows that the others send it.
void compare_counts(int size, FunctionRef<std::span<const int64_t>(int rank)> out_counts,
                    FunctionRef<std::span<const int64_t>(int rank)> in_counts, std::string_view label);

}  // namespace weft
