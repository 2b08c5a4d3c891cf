// Power cuts during a series of saves: whatever disk is left, it holds the last checkpoint whose save had returned.
#pragma once
#include "base/temporary_folder.h"
#include "checkpoint/power_cut.h"
#include "checkpoint/sample_checkpoint.h"

namespace weft {

// Tries `num_states` disks, drawn by `seed`, over all prefixes of the operations. Returns how many loaded a
// checkpoint newer than the last one promised, to show that the disks do differ.
inline int try_power_cuts(int num_states, uint32_t seed) {
  const TemporaryFolder folder;
  RecordingFileSystem recorder(folder.path());
  CheckpointStore store(folder.path(), {.keep = 2, .verify_after_write = false}, recorder);
  SampleModel model;
  std::vector<std::pair<size_t, int64_t>> promised{{0, -1}};  // after so many operations, this step is safe
  for (const int64_t step : {100, 200, 300, 400, 400}) {      // the last replaces the one before
    model.set(step);
    model.save(store);
    promised.emplace_back(recorder.ops().size(), step);
  }
  std::mt19937 random(seed);
  int num_newer = 0;
  for (int i = 0; i < num_states; ++i) {
    const size_t num_ops = size_t(i) % (recorder.ops().size() + 1);
    int64_t safe = -1;
    for (const auto& [after, step] : promised) {
      if (after <= num_ops) safe = step;
    }
    const TemporaryFolder crashed;
    CrashedDisk(recorder, num_ops, random).put(crashed.path());
    const CheckpointStore after(crashed.path());
    const int64_t found = load_newest(after);
    EXPECT_GE(found, safe) << "state " << i << " of seed " << seed << ": cut after operation " << num_ops;
    num_newer += found > safe;
  }
  return num_newer;
}

}  // namespace weft
