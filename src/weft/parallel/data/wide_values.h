// Wide values: what a rank owns of weights, read and written as f32 (f64 beside f64) however it lies.
#pragma once
#include "weft/parallel/data/bucket.h"

namespace weft {

// Calls visit(whole, offset) for elements [offset, offset + count) of a bucket that is Near: its masters as they lie,
// or, where they are split or there are values only, a copy, part by part since it is wider than what stays; with
// is_written what visit leaves in it is theirs afterwards. Without is_read the copy begins as anything.
template <class Visit>
void visit_wide(Context& context, const Owned& o, int64_t offset, int64_t count, bool is_read, bool is_written,
                const Visit& visit) {
  if (o.master && !o.is_split()) return visit(o.master.slice_flat(offset, {count}), offset);
  constexpr int64_t kElements = 1 << 20;
  const Kernels& k = context.kernels;
  for (int64_t at = offset; at < offset + count; at += kElements) {
    const Shape some{std::min(kElements, offset + count - at)};
    const Tensor wide = context.empty(o.wide_dtype(), some), values = o.values.slice_flat(at, some);
    const Tensor lower = o.master ? o.master.slice_flat(at, some) : Tensor();
    if (is_read && lower)
      k.join_masters(context.stream, wide, values, lower);
    else if (is_read)
      k.convert(context.stream, wide, values);
    visit(wide, at);
    if (is_written && lower)
      k.split_masters(context.stream, values, lower, wide);
    else if (is_written)
      k.convert(context.stream, values, wide);
  }
}

}  // namespace weft
