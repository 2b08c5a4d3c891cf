// DataParallel: ranks with the same weights and different tokens; keeps parameters, gradients and optimizer state
// whole or in parts, and sums gradients group by group behind the backward pass.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "weft/parallel/brackets.h"
#include "weft/parallel/data/bucket.h"
#include "weft/parallel/mesh.h"

namespace weft {

struct DataParallelOptions {
  Zero zero = Zero::none;
  bool reshard_after_forward = true;  // with Zero::parameters: values are gathered again for the backward pass
  FarMemory* far_states = nullptr;    // where the optimizer's states live, and masters apart from values
  FarMemory* far_values = nullptr;    // with Zero::parameters: where each rank's part of the values lives
};

// Gives every parameter its value and its gradient, in flat memory by group. What happens around a group:
//                    forward                          backward
//   enter   gather values, next group's too      drop values; once its weight halves are done, reduce gradients
//   leave   drop values                          gather values, previous group's too; make room for gradients
// Without Zero::parameters values are always there, without Zero::gradients so are gradients, which are reduced after
// the last micro-batch. With groups of one rank nothing is sent. Values that live in far memory are fetched from
// there one group before they are gathered. Sources: Rajbhandari et al., "ZeRO", 2020; Zhao et al., "PyTorch FSDP",
// 2023.
class DataParallel {
 public:
  // groups: of all parts of the model on this rank, in order of use. `shared` is a group that several parts use (a
  // tied embedding): it stays open for a whole step; -1 where there is none. Everything outlives this.
  DataParallel(Context& context, const Mesh& mesh, const DataParallelOptions& options,
               const std::vector<std::vector<Param*>>& groups, int shared, DType dtype, uint64_t seed);

  // The brackets of a part of the model whose groups are [first, first + count) of all. The last group of a part that
  // ends in the loss goes straight from forward to backward.
  std::unique_ptr<Brackets> part(size_t first, size_t count, bool ends_in_loss);

  // Around the micro-batches of a step, or around evaluation, which has none.
  void begin(int num_micro_batches);
  // Sends what is left and waits: then the owned gradients are sums over all ranks.
  void finish();
  void end_evaluation();

  // After the owned master weights (or values, where they are apart) changed; those that are frozen too, or not.
  void publish(bool with_frozen = false);

  std::vector<Owned> owned();   // of what is trained
  std::vector<Owned> frozen();  // of the rest

  // From now on gradients are looked at before they are summed over ranks; the first parameter with one that is not
  // finite is kept.
  void watch_for_not_finite();
  const Param* not_finite() const;

 private:
  class Part;
  struct EnterOp;
  struct LeaveOp;
  struct Group {
    std::vector<std::unique_ptr<Bucket>> buckets;
    int micro_batches_done = 0;
  };
  std::vector<Owned> owned_where(bool is_frozen);
  void open(size_t group);
  void close(size_t group);
  void open_gradients(size_t group);
  void close_gradients(size_t group);
  void fetch(size_t group);
  void prefetch(size_t group);

  Context& context_;
  DataParallelOptions options_;
  std::optional<FarParts> far_states_, far_values_;
  std::vector<Group> groups_;
  int shared_;
  int num_micro_batches_ = 1;
};

}  // namespace weft
