// HostBlock: pinned pages, or those of the C library.
#include "weft/tensor/host_block.h"

#include <cstdlib>

#include "weft/base/ceil_div.h"
#include "weft/base/error.h"
#include "weft/tensor/cuda/cuda_device.h"

namespace weft {

HostBlock::HostBlock(size_t bytes, Pages wanted) : bytes_(bytes) {
  constexpr size_t kCacheLine = 64;
  if (wanted == Pages::pinned && bytes > 0) data_ = allocate_pinned(bytes);
  is_pinned_ = data_ != nullptr;
  if (is_pinned_) return;
  data_ =
      static_cast<std::byte*>(std::aligned_alloc(kCacheLine, size_t(round_up(int64_t(bytes), int64_t(kCacheLine)))));
  if (!data_) throw Error("out of memory: the system refused {} bytes of the host", bytes);
}

HostBlock::~HostBlock() { is_pinned_ ? free_pinned(data_) : std::free(data_); }

}  // namespace weft
