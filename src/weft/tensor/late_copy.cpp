// LateCopy: pinned memory, and the point of the queue behind which it holds the copy.
#include "weft/tensor/late_copy.h"

#include "weft/tensor/stream.h"

namespace weft {

void LateCopy::start(Stream& stream, const Tensor& from) {
  if (!there_) there_ = stream.queue().make_point();
  if (block_.bytes() < from.bytes() && block_.bytes() > 0) there_->wait();  // somebody's who did not
  if (block_.bytes() < from.bytes()) block_ = HostBlock(from.bytes(), HostBlock::Pages::pinned);
  stream.queue().start_copy_to_host(block_.data(), from.raw(), from.bytes());
  there_->set();
}

const std::byte* LateCopy::wait() {
  there_->wait();
  return block_.data();
}

}  // namespace weft
