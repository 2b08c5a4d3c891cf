// CheckpointSaver: begin, write, tell rank 0, commit.
#include "weft/train/checkpoint_saver.h"

#include <cstring>

namespace weft {

CheckpointSaver::~CheckpointSaver() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointSaver::start(RunSnapshot snapshot) {
  check(!is_busy(), "a checkpoint is still being written");
  const Patience patience(world_);
  if (world_.rank() == 0) writer_.emplace(store_.begin(snapshot.step, snapshot.all_bytes));
  world_.barrier();
  if (world_.rank() != 0) writer_.emplace(store_.join(snapshot.step));
  snapshot_.emplace(std::move(snapshot));
  is_written_ = false, error_ = nullptr;
  thread_ = std::thread([this] { write(); });
}

void CheckpointSaver::write() noexcept {
  try {
    for (const RunSnapshot::File& file : snapshot_->tensor_files) writer_->add_tensors(file.name, file.tensors);
    for (const auto& [name, content] : snapshot_->texts) writer_->add_file(name, content);
  } catch (...) {
    error_ = std::current_exception();
  }
  snapshot_.reset();
  is_written_ = true;
}

// Rank 0 learns what the others have written.
void CheckpointSaver::adopt_records() {
  Allocator memory;
  const std::string mine = writer_->records();
  const Tensor sizes = memory.empty(DType::i64, {world_.size(), 1});
  const Tensor my_size = sizes.slice_rows(world_.rank(), 1);
  *my_size.data<int64_t>() = int64_t(mine.size());
  world_.all_gather(sizes, my_size);
  constexpr int kTag = 0;
  if (world_.rank() != 0) {
    const Tensor text = memory.empty(DType::u8, {int64_t(mine.size())});
    std::memcpy(text.raw(), mine.data(), mine.size());
    return world_.send(text, 0, kTag);
  }
  for (int r = 1; r < world_.size(); ++r) {
    const Tensor text = memory.empty(DType::u8, {sizes.data<int64_t>()[r]});
    world_.recv(text, r, kTag);
    writer_->adopt({static_cast<const char*>(text.raw()), text.bytes()});
  }
}

std::string CheckpointSaver::finish() {
  check(is_busy(), "no checkpoint is being written");
  const Patience patience(world_);
  thread_.join();
  if (error_) {
    writer_.reset();
    std::rethrow_exception(error_);
  }
  adopt_records();
  const std::string path = world_.rank() == 0 ? writer_->commit() : "";
  writer_.reset();
  world_.barrier();  // no rank goes on as if the step were safe before it is
  return path;
}

}  // namespace weft
