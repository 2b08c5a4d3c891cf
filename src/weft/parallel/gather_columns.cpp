// gather_columns: every rank sends as much as the one with the most columns.
#include "weft/parallel/gather_columns.h"

#include "weft/autograd/placement.h"

namespace weft {

void gather_columns(Context& context, Communicator& group, const Tensor& whole, const Tensor& mine) {
  const Kernels& k = context.kernels;
  if (group.size() == 1) return k.convert(context.stream, whole, mine);
  const int64_t rows = whole.dim(0), cols = whole.dim(1), most = even_cut(cols, 0, group.size()).count;
  const Tensor sent = context.empty(whole.dtype(), {rows * most});
  const Tensor all = context.empty(whole.dtype(), {group.size(), rows * most});
  k.convert(context.stream, sent.slice_flat(0, mine.shape()), mine);
  group.all_gather(all, sent);
  const size_t element = size_of(whole.dtype());
  for (int r = 0; r < group.size(); ++r) {
    const Cut cut = even_cut(cols, r, group.size());
    const size_t bytes = size_t(cut.count) * element;
    context.stream.copy_rows({whole, size_t(cut.begin) * element, size_t(cols) * element},
                             {all.slice_rows(r, 1), 0, bytes}, rows, bytes);
  }
}

}  // namespace weft
