// CheckpointSaver: writes snapshots while training goes on: every rank its own files, and rank 0 then makes the
// checkpoint visible.
#pragma once
#include <future>
#include <optional>
#include <string>

#include "weft/comm/communicator.h"
#include "weft/train/run_snapshot.h"

namespace weft {

// One save at a time. All ranks make the same calls.
class CheckpointSaver {
 public:
  // The store may be known to all ranks, or be on a file system that all see. Both outlive this.
  CheckpointSaver(Communicator& world, CheckpointStore& store) : world_(world), store_(store) {}
  // A save that was not finished is given up once its files are written; the checkpoints before it stay.
  ~CheckpointSaver() = default;
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Collective. Returns once this rank's files are being written by a thread of their own.
  void start(RunSnapshot snapshot);
  bool is_busy() const { return writer_.has_value(); }
  // Whether this rank has nothing left to write, or cannot: then finish() will not wait for it.
  bool is_written() const { return written_.valid() && is_over(written_); }
  // Collective: waits for all ranks, then makes the checkpoint durable and visible. Returns its path on rank 0;
  // throws the Error with which any rank failed, there.
  std::string finish();

 private:
  static bool is_over(const std::future<void>& work) {
    return work.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  void write();
  void wait_for_all(std::future<void> own);
  void adopt_records();

  Communicator& world_;
  CheckpointStore& store_;
  std::optional<CheckpointWriter> writer_;
  std::optional<RunSnapshot> snapshot_;
  std::future<void> written_;  // the last member: its thread, which it waits for, uses the others
};

}  // namespace weft
