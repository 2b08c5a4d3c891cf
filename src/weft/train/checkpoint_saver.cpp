// CheckpointSaver: begin, write, tell rank 0, commit.
#include "weft/train/checkpoint_saver.h"

#include <cstring>
#include <thread>

namespace weft {

void CheckpointSaver::start(RunSnapshot snapshot) {
  check(!is_busy(), "a checkpoint is still being written");
  std::future<void> begun;
  if (world_.rank() == 0)
    begun = std::async(std::launch::async, [&, step = snapshot.step, bytes = snapshot.all_bytes] {
      writer_.emplace(store_.begin(step, bytes));
    });
  wait_for_all(std::move(begun));
  if (world_.rank() != 0) writer_.emplace(store_.join(snapshot.step));
  snapshot_.emplace(std::move(snapshot));
  written_ = std::async(std::launch::async, [this] { write(); });
}

void CheckpointSaver::write() {
  const std::optional<RunSnapshot> snapshot = std::exchange(snapshot_, {});  // its memory goes however this ends
  for (const RunSnapshot::File& file : snapshot->tensor_files) writer_->add_tensors(file.name, file.tensors);
  for (const auto& [name, content] : snapshot->texts) writer_->add_file(name, content);
}

// Waits for the work with files of every rank, which has a thread of its own. A rank whose disk is slow goes on
// meeting the others meanwhile; so a disk may take its time, and a rank that stands still is missed as in any
// collective.
void CheckpointSaver::wait_for_all(std::future<void> own) {
  using std::chrono::milliseconds;
  constexpr milliseconds kLongest{100};
  Allocator memory;
  const Tensor working = memory.empty(DType::i64, {1});
  for (milliseconds nap{1};; nap = std::min(2 * nap, kLongest)) {
    if (own.valid() && own.wait_for(nap) == std::future_status::ready) own.get();  // throws what went wrong
    *working.data<int64_t>() = own.valid();
    const bool is_done = !own.valid();
    world_.all_reduce(working);
    if (*working.data<int64_t>() == 0) return;
    if (is_done) std::this_thread::sleep_for(nap);
  }
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
  std::string path;
  try {
    wait_for_all(std::move(written_));
    adopt_records();
    std::future<void> committed;
    if (world_.rank() == 0) committed = std::async(std::launch::async, [&] { path = writer_->commit(); });
    wait_for_all(std::move(committed));  // no rank goes on as if the step were safe before it is
  } catch (...) {
    writer_.reset();
    throw;
  }
  writer_.reset();
  return path;
}

}  // namespace weft
