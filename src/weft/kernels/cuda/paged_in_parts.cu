// Paged attention on tensor cores by a canonical sum (paged_plan.h): blocks that go through all keys of their lanes,
// as prompts want it, and warps that do a part each, as few lanes over many keys do.
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/follow.cuh"
#include "weft/kernels/cuda/listed_sequences.h"
#include "weft/kernels/cuda/paged_blocks.cuh"
#include "weft/kernels/cuda/paged_ways.h"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

constexpr int kWholeThreads = kWholeWarps * kWarp;

// Sums of a warp's lanes over some parts.
template <int kDim>
struct LaneSums {
  LaneStatistics ends;
  float x[kDim / 8][4] = {};
};

// The sum of all spans so far, of which this one is the newest, waits in the thread's own words of `kept`, or is
// `span` if that is the last.
template <int kDim>
__device__ __forceinline__ void fold_span(LaneSums<kDim>& span, float4* kept, bool is_first, bool is_last) {
  float4* const kept_ends = kept + kDim / 8 * kWholeThreads;
  const float4 ends = is_first ? float4{-INFINITY, -INFINITY, 0, 0} : *kept_ends;
  const FoldFactors upper(ends.x, span.ends.most[0]), lower(ends.y, span.ends.most[1]);
#pragma unroll
  for (int i = 0; i < kDim / 8; ++i) {
    float4 sum = is_first ? float4{0, 0, 0, 0} : kept[i * kWholeThreads];
    float(&x)[4] = span.x[i];
    sum = {upper(sum.x, x[0]), upper(sum.y, x[1]), lower(sum.z, x[2]), lower(sum.w, x[3])};
    if (!is_last) kept[i * kWholeThreads] = sum, sum = {0, 0, 0, 0};
    x[0] = sum.x, x[1] = sum.y, x[2] = sum.z, x[3] = sum.w;
  }
  const float4 all{upper.most, lower.most, upper(ends.z, span.ends.total[0]), lower(ends.w, span.ends.total[1])};
  if (is_last) {
    span.ends = {{all.x, all.y}, {all.z, all.w}};
  } else {
    *kept_ends = all;
    span.ends = LaneStatistics();
  }
}

// A block does tile `blockIdx.x / num_kv_heads` of kv head `blockIdx.x % num_kv_heads`, 16 lanes to a warp.
template <class T, int kDim>
__global__ void __launch_bounds__(kWholeThreads, (kDim == 64 ? 12 : 8) / kWholeWarps)
    whole_tiles_kernel(PagedCall<T> call) {
  using N = typename NativeOf<T>::Type;
  constexpr int kUnits = kDim / 8, kKeysOfWarp = kPartKeys / kWholeWarps;
  __align__(128) __shared__ uint4 keys[2][kPartKeys * kUnits];
  __align__(128) __shared__ uint4 values[kPartKeys * kUnits];
  follow();
  const PagedTile tile = call.whole[blockIdx.x / unsigned(call.num_kv_heads)];
  if (tile.lane_begin == tile.lane_end) return;
  const int kv_head = int(blockIdx.x % unsigned(call.num_kv_heads)), warp = int(threadIdx.x) / kWarp;
  const int key_end = call.key_end(tile), own_key = warp * kKeysOfWarp;
  const WarpLanes lanes = call.lanes_of(tile, warp);
  const PoolRows key_rows = pool_rows<kDim>(call, call.keys, kv_head, unit_of_thread<kDim>()),
                 value_rows = pool_rows<kDim>(call, call.values, kv_head, unit_of_thread<kDim>());
  const auto place_in = [&](int part) {
    return call.place_of(tile, part * kPartKeys + own_key + thread_of_warp() % kKeysOfWarp, key_end);
  };

  unsigned row = call.row_of(place_in(tile.first_part));
  KeyPlace next = place_in(tile.first_part + 1);
  start_copy_of_keys<kDim, kKeysOfWarp>(keys[0], own_key, key_rows, row);
  end_copy_group();
  const PartQueries<kDim> q = load_queries<kDim>(call, tile, lanes, kv_head);
  LaneSums<kDim> sum;
  for (int part = tile.first_part; part < tile.end_part; ++part) {
    wait_for_copies<0>();
    __syncthreads();  // the keys are there, and nobody reads values of the part before
    start_copy_of_keys<kDim, kKeysOfWarp>(values, own_key, value_rows, row);
    end_copy_group();
    const int at = (part - tile.first_part) & 1;
    row = call.row_of(next);
    if (part + 1 < tile.end_part) start_copy_of_keys<kDim, kKeysOfWarp>(keys[1 - at], own_key, key_rows, row);
    end_copy_group();
    next = place_in(part + 2);

    const bool sees_some = lanes.see_some(part), sees_all = sees_some && lanes.see_all(part);
    PartWeights weights;
    LaneStatistics ends;
    if (sees_some) {
      float scores[kPartColumns][4];
      multiply_keys<N, kDim>(scores, q, PartKeys<kDim>(keys[at]));
      if (!sees_all) hide_keys(scores, lanes, part);
      weigh_keys<N>(weights, ends, scores, call.scale);
    }
    wait_for_copies<1>();
    __syncthreads();  // the values are there
    if (sees_some) {
      const bool is_odd = !sees_all && has_odd_values<N, kDim>(values);
      const FoldFactors upper(sum.ends.most[0], ends.most[0]), lower(sum.ends.most[1], ends.most[1]);
      sum_all_values<N, kDim>(weights, values, lanes, part, is_odd, [&](int g, const float(&x)[kGroupColumns][4]) {
#pragma unroll
        for (int i = 0; i < kGroupColumns; ++i) {
          float(&to)[4] = sum.x[g * kGroupColumns + i];
          to[0] = upper(to[0], x[i][0]), to[1] = upper(to[1], x[i][1]);
          to[2] = lower(to[2], x[i][2]), to[3] = lower(to[3], x[i][3]);
        }
      });
      sum.ends.total[0] = upper(sum.ends.total[0], ends.total[0]), sum.ends.most[0] = upper.most;
      sum.ends.total[1] = lower(sum.ends.total[1], ends.total[1]), sum.ends.most[1] = lower.most;
    }
    const bool is_last = part + 1 == tile.end_part;
    if (tile.slot >= 0 && (is_last || (part + 1) % kSpanParts == 0)) {
      const int64_t first = (int64_t(tile.slot) * call.num_kv_heads + kv_head) * (kUnits + 1) * kWholeThreads;
      fold_span<kDim>(sum, call.whole_sums + first + int(threadIdx.x),
                      part / kSpanParts == tile.first_part / kSpanParts, is_last);
    }
  }
  store_lanes<kDim>(call, tile, lanes, kv_head, sum.x, sum.ends);
}

// Shared memory has room for the values of so many parts.
template <int kDim>
constexpr int kPartWarps = kDim == 64 ? 4 : 2;

// Folds what waits in slots, in their order: into a slot, or as y. Reads kAtOnce slots at once.
template <int kDim, int kThreads, int kAtOnce, class T>
__device__ __forceinline__ void fold_slots(const PagedCall<T>& call, const PagedTile& tile, const PartFold& fold,
                                           int kv_head) {
  constexpr int kUnits = kDim / 4;
  using N = typename NativeOf<T>::Type;
  const int64_t stride = int64_t(call.num_kv_heads) * call.part_lanes;
  for (int at = int(threadIdx.x); at < (tile.lane_end - tile.lane_begin) * kUnits; at += kThreads) {
    const int lane = at / kUnits, unit = at % kUnits;
    const int64_t own = int64_t(kv_head) * call.part_lanes + lane, first = fold.first_slot * stride + own;
    float most = -INFINITY, total = 0;
    float4 sum{0, 0, 0, 0};
    for (int slot = 0; slot < fold.num_slots; slot += kAtOnce) {
      float4 x[kAtOnce];
      float2 ends[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int64_t from = first + min(slot + i, fold.num_slots - 1) * stride;
        ends[i] = load_written(call.part_ends + from);
        x[i] = load_written(reinterpret_cast<const float4*>(call.part_sums + from * kDim) + unit);
      }
      // What no branch stands before is loaded at once; a part that is not there changes nothing.
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (slot + i >= fold.num_slots) ends[i] = {-INFINITY, 0}, x[i] = {0, 0, 0, 0};
        const FoldFactors factors(most, ends[i].x);
        sum = {factors(sum.x, x[i].x), factors(sum.y, x[i].y), factors(sum.z, x[i].z), factors(sum.w, x[i].w)};
        total = factors(total, ends[i].y), most = factors.most;
      }
    }
    if (fold.slot >= 0) {
      const int64_t to = fold.slot * stride + own;
      *(reinterpret_cast<float4*>(call.part_sums + to * kDim) + unit) = sum;
      if (unit == 0) call.part_ends[to] = {most, total};
    } else {
      const float inverse = call.inverse_of_all(kv_head, tile.lane_begin + lane, most, total);
      T* const to = call.y + call.lane_at(tile, kv_head, tile.lane_begin + lane, kDim) + 4 * unit;
      *reinterpret_cast<uint2*>(to) = make_uint2(pack<N>(finished(sum.x, inverse), finished(sum.y, inverse)),
                                                 pack<N>(finished(sum.z, inverse), finished(sum.w, inverse)));
    }
  }
}

// A warp does one part and leaves it in its slot; the last of the blocks that a fold waits for does the fold.
template <class T, int kDim>
__global__ void __launch_bounds__(kPartWarps<kDim>* kWarp, kDim == 64 ? 3 : 4) parts_kernel(PagedCall<T> call) {
  using N = typename NativeOf<T>::Type;
  constexpr int kUnits = kDim / 8, kThreads = kPartWarps<kDim> * kWarp;
  __align__(128) __shared__ uint4 values[kPartWarps<kDim>][kPartKeys * kUnits];
  __shared__ bool is_last;
  follow();
  const PagedTile tile = call.parts[blockIdx.x / unsigned(call.num_kv_heads)];
  if (tile.lane_begin == tile.lane_end) return;
  const int kv_head = int(blockIdx.x % unsigned(call.num_kv_heads)), warp = int(threadIdx.x) / kWarp;
  const int part = tile.first_part + warp;
  if (part < tile.end_part) {
    const WarpLanes lanes = call.lanes_of(tile, 0);
    const int key_end = call.key_end(tile), first = part * kPartKeys + thread_of_warp();
    const unsigned rows[2] = {call.row_of(call.place_of(tile, first, key_end)),
                              call.row_of(call.place_of(tile, first + kWarp, key_end))};
    const PoolRows key_rows = pool_rows<kDim>(call, call.keys, kv_head, thread_column()),
                   value_rows = pool_rows<kDim>(call, call.values, kv_head, unit_of_thread<kDim>());
    uint4 keys[kPartColumns][kDim / 32];
#pragma unroll
    for (int j = 0; j < kPartColumns; ++j) {
      const std::byte* const from = key_rows[of_lane(rows[j / 4], j % 4 * 8 + thread_row())];
#pragma unroll
      for (int c = 0; c < kDim / 32; ++c) keys[j][c] = load16(from + 4 * kVectorBytes * c);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
      start_copy_of_keys<kDim, kWarp>(values[warp], half * kWarp, value_rows, rows[half]);
    end_copy_group();
    const PartQueries<kDim> q = load_queries<kDim>(call, tile, lanes, kv_head);
    float scores[kPartColumns][4];
    multiply_keys<N, kDim>(scores, q, [&](int j, int c) { return keys[j][c]; });
    const bool sees_all = lanes.see_all(part);
    if (!sees_all) hide_keys(scores, lanes, part);
    PartWeights weights;
    LaneStatistics ends;
    weigh_keys<N>(weights, ends, scores, call.scale);
    wait_for_copies<0>();
    __syncwarp();
    const bool is_odd = !sees_all && has_odd_values<N, kDim>(values[warp]);
    const int64_t slot = (int64_t(tile.slot + warp) * call.num_kv_heads + kv_head) * call.part_lanes + thread_row();
    sum_all_values<N, kDim>(
        weights, values[warp], lanes, part, is_odd, [&](int g, const float(&x)[kGroupColumns][4]) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            if (thread_row() + 8 * h >= lanes.count) continue;
            float* const to = call.part_sums + (slot + 8 * h) * kDim + g * kGroupDims + 2 * thread_column();
#pragma unroll
            for (int i = 0; i < kGroupColumns; ++i)
              *reinterpret_cast<float2*>(to + 8 * i) = {x[i][2 * h], x[i][2 * h + 1]};
          }
        });
#pragma unroll
    for (int h = 0; h < 2; ++h)
      if (thread_row() + 8 * h < lanes.count && thread_column() == 0)
        call.part_ends[slot + 8 * h] = {ends.most[h], ends.total[h]};
  }
  for (int at = tile.fold; at >= 0;) {
    const PartFold fold = call.folds[at];
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned* const arrivals = call.arrivals + at * call.num_kv_heads + kv_head;
      is_last = count_in(arrivals) + 1 == unsigned(fold.num_arrivals);
      if (is_last) *arrivals = 0;  // as it was uploaded: the next call may have the same upload
    }
    __syncthreads();
    if (!is_last) return;
    if (fold.num_slots > kSpanParts / 2)
      fold_slots<kDim, kThreads, kSpanParts>(call, tile, fold, kv_head);
    else
      fold_slots<kDim, kThreads, kSpanParts / 2>(call, tile, fold, kv_head);
    at = fold.next;
  }
}

// Work lists on the device and memory for what waits; kept until the kernels are queued.
template <class T, int kDim>
void run_in_parts(Stream& stream, const PagedAttentionArgs& args) {
  const int num_kv_heads = int(args.keys.dim(2)), group = int(args.q.dim(1)) / num_kv_heads;
  auto [sequences, blocks, block_tokens] = list_sequences(args);
  PagedPlan plan = plan_paged(sequences, group, args.window, num_kv_heads, kPartWarps<kDim>);
  const auto make_roomy = [](auto& list) { list.resize(size_t(roomy(int64_t(list.size())))); };
  make_roomy(blocks), make_roomy(plan.whole), make_roomy(plan.parts), make_roomy(plan.folds);
  const int64_t num_folds = int64_t(plan.folds.size());

  PackedArrays arrays;
  const size_t blocks_at = arrays.add(blocks), whole_at = arrays.add(plan.whole), parts_at = arrays.add(plan.parts),
               folds_at = arrays.add(plan.folds),
               arrivals_at = arrays.add(std::vector<uint32_t>(size_t(num_folds * num_kv_heads)));
  const std::byte* const device = upload(stream, arrays.data(), int64_t(arrays.size()));
  const auto scratch = [&](int64_t slots, int64_t numbers) {
    slots = roomy(slots);
    return slots ? stream.allocator().empty(DType::f32, {slots * num_kv_heads * numbers}) : Tensor();
  };
  const int part_lanes = plan.part_lanes;
  const Tensor whole_sums = scratch(plan.num_whole_slots, (kDim / 8 + 1) * int64_t(kWholeThreads) * 4),
               part_sums = scratch(plan.num_part_slots, int64_t(part_lanes) * kDim),
               part_ends = scratch(plan.num_part_slots, int64_t(part_lanes) * 2);

  PagedCall<T> call{};
  call.y = device_data<T>(args.y), call.q = device_data<T>(args.q);
  call.keys = device_data<T>(args.keys), call.values = device_data<T>(args.values);
  call.blocks =
      args.selected ? device_data<int32_t>(args.selected) : reinterpret_cast<const int32_t*>(device + blocks_at);
  call.whole = reinterpret_cast<const PagedTile*>(device + whole_at);
  call.parts = reinterpret_cast<const PagedTile*>(device + parts_at);
  call.folds = reinterpret_cast<const PartFold*>(device + folds_at);
  call.arrivals = reinterpret_cast<unsigned*>(const_cast<std::byte*>(device) + arrivals_at);
  call.whole_sums = reinterpret_cast<float4*>(device_data<float>(whole_sums));
  call.part_sums = device_data<float>(part_sums);
  call.part_ends = reinterpret_cast<float2*>(device_data<float>(part_ends));
  call.part_lanes = part_lanes;
  call.block_tokens = int(block_tokens);
  call.block_shift = std::has_single_bit(uint64_t(block_tokens)) ? std::countr_zero(uint64_t(block_tokens)) : -1;
  call.num_kv_heads = num_kv_heads, call.group = group, call.window = args.window;
  call.scale = args.scale * kLog2OfE;
  call.sinks = device_data<T>(args.sinks);
  LaunchShape whole = over_tiles(plan.whole.size(), num_kv_heads),
              parts = over_tiles(plan.parts.size(), num_kv_heads);
  whole.threads = kWholeThreads, parts.threads = kPartWarps<kDim> * kWarp;
  launch_following(stream, whole_tiles_kernel<T, kDim>, whole, call);
  launch_following(stream, parts_kernel<T, kDim>, parts, call);
}

}  // namespace

bool paged_attention_in_parts(Stream& stream, const PagedAttentionArgs& args) {
  const int64_t dim = args.q.dim(2), num_rows = args.keys.dim(0) * args.keys.dim(1);
  const DType type = args.q.dtype();
  if ((type != DType::bf16 && type != DType::f16) || args.codes != RowCodes::none || args.keys.dtype() != type)
    return false;
  if (!args.values || (dim != 64 && dim != 128) || args.y.dim(2) != dim || args.softcap != 0 || !(args.scale > 0))
    return false;
  if (args.keys.dim(2) == 0 || num_rows > INT32_MAX - kPartKeys) return false;
  if (!are_aligned(args.y, args.q, args.keys, args.values)) return false;
  const auto run = [&]<class T>() {
    dim == 64 ? run_in_parts<T, 64>(stream, args) : run_in_parts<T, 128>(stream, args);
  };
  type == DType::bf16 ? run.template operator()<BFloat16>() : run.template operator()<Float16>();
  return true;
}

}  // namespace weft::cuda
