// FarWeights: tensors are bound to one of two buffers in turn.
#include "weft/pretrained/far_weights.h"

#include <unistd.h>

#include <algorithm>

#include "weft/base/ceil_div.h"

namespace weft {
namespace {

constexpr int64_t kAlignment = 64;

std::unique_ptr<FarMemory> make_memory(Context& context, const FarLayers& layers, int rank) {
  switch (context.stream.allocator().device()) {
    case Device::meta: return std::make_unique<FarMemory>(nullptr);
    case Device::cuda: return std::make_unique<FarMemory>(make_host_store(HostBlock::Pages::pinned), &context.stream);
    case Device::cpu: break;
  }
  make_folders(FileSystem::real(), layers.folder);
  const std::string file = fmt::format("weft-{}-rank-{}.far", ::getpid(), rank);
  return std::make_unique<FarMemory>(make_disk_store(FileSystem::real(), join_path(layers.folder, file)));
}

}  // namespace

FarWeights::FarWeights(Context& context, const FarLayers& layers, int rank)
    : context_(context), memory_(make_memory(context, layers, rank)) {}

FarWeights::~FarWeights() { memory_->wait_for_all(); }

// The near memory grows to the largest group; what lay in it is in the store.
void FarWeights::reserve(size_t bytes) {
  if (near_[0].bytes && near_[0].bytes.bytes() >= bytes) return;
  for (Near& near : near_) near.bytes = {};
  for (const Group& group : groups_)
    for (const Piece& piece : group.pieces) *piece.tensor = {};
  for (Near& near : near_) near.bytes = context_.empty(DType::u8, {int64_t(bytes)});
  for (const Group& group : groups_) bind(group, near_[0].bytes);
}

void FarWeights::bind(const Group& group, const Tensor& bytes) {
  for (const Piece& piece : group.pieces) *piece.tensor = bytes.view_bytes(piece.offset, piece.dtype, piece.shape);
}

void FarWeights::add(size_t group, const std::vector<Param*>& params) {
  check(groups_.empty() || group > groups_.back().number, "far groups come in the order of use");
  Group g{.number = group, .pieces = {}, .slot = {}};
  size_t bytes = 0;
  for (Param* param : params) {
    param->each_memory([&](Tensor& t) {
      g.pieces.push_back({&t, t.dtype(), t.shape(), bytes});
      bytes += size_t(round_up(int64_t(t.bytes()), kAlignment));
    });
  }
  reserve(bytes);
  const Tensor staged = near_[0].bytes.slice_flat(0, {int64_t(bytes)});
  for (const Piece& piece : g.pieces)
    context_.stream.copy(staged.view_bytes(piece.offset, piece.dtype, piece.shape), *piece.tensor);
  g.slot = memory_->reserve(bytes);
  memory_->wait(memory_->start_store(g.slot, staged));
  bind(g, near_[0].bytes);
  groups_.push_back(std::move(g));
}

void FarWeights::start() {
  for (size_t i = 0; i < near_.size() && !groups_.empty(); ++i) bring(i % groups_.size(), near_[i]);
}

void FarWeights::bring(size_t group, Near& into) {
  into.group = group;
  into.ticket =
      memory_->start_load(groups_[group].slot, into.bytes.slice_flat(0, {int64_t(groups_[group].slot.bytes)}));
}

size_t FarWeights::find(size_t group) const {
  const auto found = std::ranges::lower_bound(groups_, group, {}, &Group::number);
  return found != groups_.end() && found->number == group ? size_t(found - groups_.begin()) : kNear;
}

Var FarWeights::enter(size_t group, const Var& x) {
  const size_t wanted = find(group);
  if (wanted == kNear) return x;
  if (near_[next_].group != wanted) {  // a step ended before its last layer
    for (Near& near : near_) memory_->wait(near.ticket);
    bring(wanted, near_[next_]);
    bring((wanted + 1) % groups_.size(), near_[1 - next_]);
  }
  memory_->wait(near_[next_].ticket);
  bind(groups_[wanted], near_[next_].bytes);
  return x;
}

Var FarWeights::leave(size_t group, const Var& x) {
  if (find(group) == kNear) return x;
  Near& near = near_[next_];
  next_ = 1 - next_;
  bring((near.group + 2) % groups_.size(), near);
  return x;
}

}  // namespace weft
