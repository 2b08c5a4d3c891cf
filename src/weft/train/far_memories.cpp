// FarMemories: one queue of transfers for the host's memory, one for the disk.
#include "weft/train/far_memories.h"

namespace weft {

FarMemories::FarMemories(Context& context, const MeshConfig& mesh, int rank)
    : context_(context), offload_(mesh.offload) {
  const bool is_meta = context.stream.allocator().device() == Device::meta;
  const auto is_wanted = [&](OffloadTo to) {
    return offload_.optimizer == to || offload_.parameters == to || offload_.activations == to;
  };
  Stream* const stream = context.stream.allocator().device() == Device::cuda ? &context.stream : nullptr;
  const auto pages = stream ? HostBlock::Pages::pinned : HostBlock::Pages::any;
  if (is_wanted(OffloadTo::host))
    host_ = std::make_unique<FarMemory>(is_meta ? nullptr : make_host_store(pages), stream);
  if (is_wanted(OffloadTo::disk)) {
    std::unique_ptr<FarStore> store;
    if (!is_meta) {
      make_folders(FileSystem::real(), offload_.dir);
      store = make_disk_store(FileSystem::real(), join_path(offload_.dir, fmt::format("weft-rank-{}.far", rank)));
    }
    disk_ = std::make_unique<FarMemory>(std::move(store), stream);
  }
  FarMemory* const activations = of(offload_.activations);
  if (!activations) return;
  inputs_ = std::make_unique<FarInputs>(*activations, context.stream.allocator());
  context_.saved_inputs = inputs_.get();
}

FarMemories::~FarMemories() {
  if (inputs_) context_.saved_inputs = nullptr;
}

FarStats FarMemories::stats() const {
  FarStats sum;
  for (const FarMemory* far : {host_.get(), disk_.get()}) {
    if (!far) continue;
    const FarStats s = far->stats();
    sum.reserved_bytes += s.reserved_bytes, sum.stored_bytes += s.stored_bytes, sum.loaded_bytes += s.loaded_bytes;
    sum.waited_seconds += s.waited_seconds;
  }
  return sum;
}

}  // namespace weft
