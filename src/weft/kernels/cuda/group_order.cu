// Copies of tokens in the order of their experts: a counting sort in one kernel, whose blocks need nothing of each
// other.
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/group_rows.h"
#include "weft/kernels/cuda/reduce.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

constexpr int kOrderThreads = 512, kOrderWarps = kOrderThreads / kWarp;

struct GroupOrder {
  int32_t *at, *tokens;
  GroupRows* runs;
  const int32_t* chosen;
  int copies, k, groups, most, num_runs;
};

// A block to each group, which counts those of all groups: where its own begin is the sum of those before.
__global__ void __launch_bounds__(kOrderThreads) group_order_kernel(const GroupOrder o) {
  __shared__ int counts[kMostOrderedGroups];
  __shared__ int of_warps[kOrderWarps];
  const int group = int(blockIdx.x), me = int(threadIdx.x);
  for (int g = me; g < o.groups; g += kOrderThreads) counts[g] = 0;
  __syncthreads();
  for (int i = me; i < o.copies; i += kOrderThreads) atomicAdd(&counts[o.chosen[i]], 1);
  __syncthreads();
  int before = 0, runs_before = 0;
  for (int g = me; g < group; g += kOrderThreads)
    before += counts[g], runs_before += (counts[g] + o.most - 1) / o.most;
  const int begin = block_sum(before), first_run = block_sum(runs_before);
  const int count = counts[group], runs = (count + o.most - 1) / o.most;
  for (int r = me; r < runs; r += kOrderThreads)
    o.runs[first_run + r] = {begin + r * o.most, min(o.most, count - r * o.most), group};
  if (group == o.groups - 1)
    for (int r = first_run + runs + me; r < o.num_runs; r += kOrderThreads) o.runs[r] = {0, 0, 0};
  for (int first = 0, row = begin; first < o.copies && row < begin + count; first += kOrderThreads) {
    const int i = first + me;
    const bool is_mine = i < o.copies && o.chosen[i] == group;
    const unsigned votes = __ballot_sync(kAllLanes, is_mine);
    if (me % kWarp == 0) of_warps[me / kWarp] = __popc(votes);
    __syncthreads();
    int place = row + __popc(votes & ((1u << me % kWarp) - 1));
    for (int w = 0; w < kOrderWarps; ++w) {
      if (w < me / kWarp) place += of_warps[w];
      row += of_warps[w];
    }
    if (is_mine) o.at[i] = place, o.tokens[place] = i / o.k;
    __syncthreads();
  }
}

}  // namespace

void order_by_group(Stream& stream, const GroupOrderArgs& args) {
  shapes::check_order_by_group(args);
  const int64_t copies = args.chosen.numel();
  if (copies == 0) return;
  const GroupOrder o{.at = device_data<int32_t>(args.at),
                     .tokens = device_data<int32_t>(args.tokens),
                     .runs = static_cast<GroupRows*>(args.runs.raw()),
                     .chosen = device_data<int32_t>(args.chosen),
                     .copies = int(copies),
                     .k = int(args.chosen.dim(1)),
                     .groups = int(args.groups),
                     .most = int(run_rows(copies, args.groups)),
                     .num_runs = int(copies)};
  launch(stream, group_order_kernel, {.blocks_x = unsigned(args.groups), .threads = kOrderThreads}, o);
}

}  // namespace weft::cuda
