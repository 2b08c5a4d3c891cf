// What choosing tokens needs of rows of logits: parts of rows are looked through by blocks of the whole card, and
// what has an order, for the sums to have the bits of the host's, is done by a block to each query.
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/follow.cuh"
#include "weft/kernels/cuda/reduce.cuh"
#include "weft/kernels/shape_checks.h"
#include "weft/kernels/token_weight.h"

namespace weft::cuda {
namespace {

using Want = TokenQuery::Want;

constexpr int kThreads = 256;
constexpr int kPart = 2048;  // tokens that a block looks through
constexpr int kBlock = int(token_weighing::kBlock), kLanes = int(token_weighing::kLanes);
// The depth of a token is by how much its logit, over the temperature, is below the highest. How deep candidates lie
// is found in rounds, each of which divides what is left by so many bounds.
constexpr int kBounds = kThreads / kWarp, kRounds = 3;
constexpr float kMargin = 1e-4f;  // of sums that are not rounded as the host's
constexpr float kSlack = 1e-3f;   // of depths, for weights that rounding makes equal

struct Top {
  float logit;
  int token;

  // The first of equals.
  __device__ Top or_higher(const Top& other) const {
    return other.logit > logit || (other.logit == logit && other.token < token) ? other : *this;
  }
};

// Of a warp's threads, in all of them.
__device__ Top highest_of_warp(Top best) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2)
    best =
        best.or_higher({__shfl_xor_sync(kAllLanes, best.logit, mask), __shfl_xor_sync(kAllLanes, best.token, mask)});
  return best;
}

__device__ bool is_drawn(const TokenQuery& q) { return q.want == Want::drawn || q.want == Want::drawn_of_likely; }

struct Candidate {
  float logit;
  int token;
};
constexpr int kMostCandidates = FoundTokens::kMostCandidates;

struct Find {
  FoundTokens* found;
  Candidate* candidates;  // [queries, kMostCandidates], of each in any order
  float* logits;
  const TokenQuery* queries;
  const TokenChange* changes;
  const uint32_t* masks;
  Top* tops;                   // [queries, parts]
  double *sums, *sums_at_one;  // [queries, blocks]
  float* shares;               // [rounds, queries, parts, bounds]
  int64_t columns;
  int vocab, num_queries, parts, blocks, mask_words;

  __device__ float* row(const TokenQuery& q) const { return logits + q.row * columns; }
  __device__ float* share(int round, int query, int part) const {
    return shares + ((int64_t(round) * num_queries + query) * parts + part) * kBounds;
  }
};

// body(i, logit) of this thread's tokens of this block's part.
template <class Body>
__device__ void for_part(const Find& f, const float* logits, Body&& body) {
  const int begin = int(blockIdx.y) * kPart, end = min(begin + kPart, f.vocab);
  for (int i = begin + int(threadIdx.x); i < end; i += kThreads) body(i, logits[i]);
}

template <class Put>
__device__ void for_changes(const Find& f, float* logits, int first, int count, Put&& put) {
  for (int i = int(threadIdx.x); i < count; i += kThreads) {
    const TokenChange c = f.changes[first + i];
    if (c.token >= 0 && c.token < f.vocab) put(logits[c.token], c.amount);
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads) change_logits_kernel(const Find f) {
  follow();
  const TokenQuery& q = f.queries[blockIdx.x];
  float* const logits = f.row(q);
  for_changes(f, logits, q.first_change, q.num_biases,
              [](float& x, float bias) { x = bias <= kForbiddingBias ? -INFINITY : x + bias; });
  for_changes(f, logits, q.first_change + q.num_biases, q.num_penalised, [&](float& x, float count) {
    const double repeated = x > 0 ? double(x) / q.repetition_penalty : double(x) * q.repetition_penalty;
    const double penalty = __dadd_rn(q.presence_penalty, __dmul_rn(q.frequency_penalty, double(count)));
    x = float(count > 0 ? __dadd_rn(repeated, -penalty) : repeated);
  });
  for_changes(f, logits, q.first_change + q.num_biases + q.num_penalised, q.num_forbidden,
              [](float& x, float) { x = -INFINITY; });
}

// By parts of rows, after all other changes.
__global__ void __launch_bounds__(kThreads) mask_logits_kernel(const Find f) {
  follow();
  const TokenQuery& q = f.queries[blockIdx.x];
  if (q.mask < 0) return;
  float* const logits = f.row(q);
  const uint32_t* const mask = f.masks + int64_t(q.mask) * f.mask_words;
  for_part(f, logits, [&](int i, float) {
    if ((mask[i / 32] >> (i % 32) & 1) == 0) logits[i] = -INFINITY;
  });
}

__global__ void __launch_bounds__(kThreads) tops_kernel(const Find f) {
  follow();
  const int query = int(blockIdx.x);
  Top best{-INFINITY, f.vocab};
  for_part(f, f.row(f.queries[query]), [&](int i, float logit) {
    if (logit > best.logit) best = {logit, i};
  });
  best = highest_of_warp(best);
  __shared__ Top of_warps[kThreads / kWarp];
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = best;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kThreads / kWarp; ++w) best = best.or_higher(of_warps[w]);
  f.tops[query * f.parts + int(blockIdx.y)] = best;
}

// Of all parts; for whole warps.
__device__ Top highest(const Find& f, int query) {
  Top best{-INFINITY, f.vocab};
  for (int p = int(threadIdx.x) % kWarp; p < f.parts; p += kWarp) best = best.or_higher(f.tops[query * f.parts + p]);
  return highest_of_warp(best);
}

__device__ float times_plus(float a, float b, float c) { return __fadd_rn(__fmul_rn(a, b), c); }

// token_weighing::exp_nonpositive, bit for bit.
__device__ float exp_nonpositive(float x) {
  using namespace token_weighing;
  if (!(x >= kLowest)) return 0;
  const float shifted = times_plus(x, kLog2e, kRound), n = __fadd_rn(shifted, -kRound);
  const float r = times_plus(-n, kLog2Low, times_plus(-n, kLog2High, x));
  float p = times_plus(kP0, r, kP1);
  p = times_plus(p, r, kP2);
  p = times_plus(p, r, kP3);
  p = times_plus(p, r, kP4);
  p = times_plus(p, r, kP5);
  const float of_rest = __fadd_rn(times_plus(__fmul_rn(p, r), r, r), 1);
  return __uint_as_float(__float_as_uint(of_rest) + (__float_as_uint(shifted) << 23));
}

__device__ float weight_of(float logit, float top, float inverse_temperature) {
  return logit == top ? 1 : exp_nonpositive(__fmul_rn(__fadd_rn(logit, -top), inverse_temperature));
}

// kLanes threads to each of the blocks of tokens whose weights are summed by themselves.
__global__ void __launch_bounds__(kThreads) weights_kernel(const Find f) {
  __shared__ double of_lanes[2][kThreads];
  follow();
  const int query = int(blockIdx.x), me = int(threadIdx.x), lane = me % kLanes;
  const int block = (int(blockIdx.y) * kThreads + me) / kLanes;
  const TokenQuery& q = f.queries[query];
  const bool is_weighed = is_drawn(q);
  if (!is_weighed && !q.wants_log_sum) return;
  const float top = highest(f, query).logit;
  const float* const logits = f.row(q);
  double sum = 0, at_one = 0;
  for (int j = 0; j < kBlock / kLanes; ++j) {
    const int i = block * kBlock + j * kLanes + lane;
    if (i >= f.vocab) break;
    if (is_weighed) sum += double(weight_of(logits[i], top, q.inverse_temperature));
    if (q.wants_log_sum) at_one += double(weight_of(logits[i], top, 1));
  }
  of_lanes[0][me] = sum, of_lanes[1][me] = at_one;
  __syncthreads();
  if (lane != 0 || block >= f.blocks) return;
  for (int l = 1; l < kLanes; ++l) sum += of_lanes[0][me + l], at_one += of_lanes[1][me + l];
  f.sums[query * f.blocks + block] = sum, f.sums_at_one[query * f.blocks + block] = at_one;
}

// For thread 0, which reads sums one after the other: in shared memory, but of vocabularies beyond half a million.
__device__ const double* near(const double* sums, int count) {
  constexpr int kMost = 1024;
  __shared__ double copies[kMost];
  if (count > kMost) return sums;
  __syncthreads();  // those of another call are read
  for (int i = int(threadIdx.x); i < count; i += kThreads) copies[i] = sums[i];
  __syncthreads();
  return copies;
}

// As the host adds them.
__device__ double sum_in_order(const double* sums, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += sums[i];
  return sum;
}

// TokenWeights::at, for all threads; total: of thread 0.
__device__ int token_at(const Find& f, const TokenQuery& q, const double* sums, const float* logits, float top,
                        double total) {
  __shared__ float weights[kBlock];
  __shared__ double target;
  __shared__ int block, token;
  if (threadIdx.x == 0) {
    double left = __dmul_rn(double(q.uniform), total);
    int b = 0;
    while (b + 1 < f.blocks && left >= sums[b]) left -= sums[b++];
    target = left, block = b, token = -1;
  }
  __syncthreads();
  for (int b = block; b < f.blocks; ++b) {
    const int count = min(kBlock, f.vocab - b * kBlock);
    for (int i = int(threadIdx.x); i < kBlock; i += kThreads)
      weights[i] = i < count ? weight_of(logits[b * kBlock + i], top, q.inverse_temperature) : 0;
    __syncthreads();
    if (threadIdx.x == 0) {
      constexpr int kAtOnce = 16;  // so many are taken off before it is asked which of them was the last
      double left = target;
      for (int i = 0; i < kBlock && token < 0; i += kAtOnce) {
        double behind[kAtOnce];
        for (int j = 0; j < kAtOnce; ++j) behind[j] = left -= double(weights[i + j]);
        for (int j = kAtOnce - 1; j >= 0; --j)
          if (behind[j] < 0 && weights[i + j] > 0) token = b * kBlock + i + j;
      }
      target = left;
    }
    __syncthreads();
    if (token >= 0) return token;
  }
  // Rounding left something of the target.
  int last = 0;
  for (int i = f.vocab - 1; i >= 0 && last == 0; --i)
    if (weight_of(logits[i], top, q.inverse_temperature) > 0) last = i;
  return last;
}

__global__ void __launch_bounds__(kThreads) choice_kernel(const Find f) {
  follow();
  const int query = int(blockIdx.x);
  const TokenQuery& q = f.queries[query];
  const float* const logits = f.row(q);
  const bool is_first = threadIdx.x == 0;
  const Top top = highest(f, query);
  const bool may_come = top.logit > -INFINITY;
  FoundTokens found;
  found.highest = top.logit;
  if (q.wants_log_sum) {
    const double* const sums = near(f.sums_at_one + int64_t(query) * f.blocks, f.blocks);
    if (is_first) found.total_at_one = sum_in_order(sums, f.blocks);
  }
  found.likeliest = may_come ? top.token : FoundTokens::kNoToken;
  int token = q.want == Want::given ? q.given : found.likeliest;
  if (is_drawn(q) && may_come) {
    const double* const sums = near(f.sums + int64_t(query) * f.blocks, f.blocks);
    if (is_first) found.total = sum_in_order(sums, f.blocks);
    if (q.want == Want::drawn) token = token_at(f, q, sums, logits, top.logit, found.total);
  }
  found.token = token, found.logit = token >= 0 ? logits[token] : 0;
  if (is_first) f.found[query] = found;
}

__device__ bool wants_rank(const TokenQuery& q) {
  return q.wants_log_sum && (q.want == Want::drawn || q.want == Want::given);
}

// How many tokens are likelier than the one that was chosen.
__global__ void __launch_bounds__(kThreads) rank_kernel(const Find f) {
  follow();
  const TokenQuery& q = f.queries[blockIdx.x];
  FoundTokens& found = f.found[blockIdx.x];
  if (!wants_rank(q)) return;
  const float chosen = found.logit;
  int likelier = 0;
  for_part(f, f.row(q), [&](int, float logit) { likelier += logit > chosen; });
  likelier = block_sum(likelier);
  if (threadIdx.x == 0 && likelier > 0) atomicAdd(&found.num_likelier, likelier);
}

// What is left to search, divided by bounds: at first each twice as deep as the one before, since few tokens may be
// near the highest and many far below it.
struct Depths {
  float from, to;
  bool are_doubled;

  __device__ float bound(int i) const {
    const float share = are_doubled ? float(2 << i) / float(1 << kBounds) : float(i + 1) / float(kBounds);
    return i + 1 == kBounds ? to : from + (to - from) * share;
  }
  __device__ Depths up_to(int i) const { return {i == 0 ? from : bound(i - 1), bound(i), false}; }
};

__device__ bool is_searched(const TokenQuery& q) {
  return q.want == Want::drawn_of_likely && (q.kept.top_k > 0 || q.kept.min_p <= 0);
}

// Between which depths the candidates of a query end, after so many rounds; for all threads.
__device__ Depths depths_of(const Find& f, const TokenQuery& q, int query, int rounds) {
  __shared__ float sums[kBounds];
  const double total = f.found[query].total;
  // Of a top_p alone those that are so unlikely that all of them together are not among the likeliest that reach it.
  const double unlikely = (1 - q.kept.top_p) * total / f.vocab;
  const float deepest = -token_weighing::kLowest;
  const float end = q.kept.top_k > 0 || unlikely <= 0 ? deepest : fminf(deepest, kSlack - logf(float(unlikely)));
  const float needed = q.kept.top_k > 0 ? float(q.kept.top_k) : float(q.kept.top_p * total) * (1 + kMargin);
  const int warp = int(threadIdx.x) / kWarp, lane = int(threadIdx.x) % kWarp;
  Depths d{0, end, true};
  for (int round = 0; round < rounds; ++round) {
    float sum = 0;
    for (int p = lane; p < f.parts; p += kWarp) sum += f.share(round, query, p)[warp];
    sum = warp_sum(sum);
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    int bound = 0;
    while (bound < kBounds && sums[bound] < needed) ++bound;
    d = bound < kBounds ? d.up_to(bound) : Depths{d.to, d.to, false};
    __syncthreads();
  }
  return d;
}

// How many tokens of this part are above each bound, or their weights where a share of these is asked for.
__global__ void __launch_bounds__(kThreads) shares_kernel(const Find f, const int round) {
  __shared__ float of_warps[kBounds][kThreads / kWarp];
  follow();
  const int query = int(blockIdx.x);
  const TokenQuery& q = f.queries[query];
  if (!is_searched(q)) return;
  const Depths depths = depths_of(f, q, query, round);
  const float top = f.found[query].highest;
  float sums[kBounds] = {};
  for_part(f, f.row(q), [&](int, float logit) {
    const float below = logit == top ? 0 : (top - logit) * q.inverse_temperature;
    if (!(below <= depths.to)) return;
    const float share = q.kept.top_k > 0 ? 1 : __expf(-below);
    for (int i = 0; i < kBounds; ++i)
      if (below <= depths.bound(i)) sums[i] += share;
  });
  const int warp = int(threadIdx.x) / kWarp;
  for (int i = 0; i < kBounds; ++i) {
    const float sum = warp_sum(sums[i]);
    if (threadIdx.x % kWarp == 0) of_warps[i][warp] = sum;
  }
  __syncthreads();
  if (threadIdx.x >= kBounds) return;
  float sum = 0;
  for (int w = 0; w < kThreads / kWarp; ++w) sum += of_warps[threadIdx.x][w];
  f.share(round, query, int(blockIdx.y))[threadIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads) candidates_kernel(const Find f) {
  follow();
  const int query = int(blockIdx.x);
  const TokenQuery& q = f.queries[query];
  FoundTokens& found = f.found[query];
  if (q.want != Want::drawn_of_likely || found.token < 0) return;
  float depth = -token_weighing::kLowest;
  if (is_searched(q)) depth = depths_of(f, q, query, kRounds).to + kSlack;
  if (q.kept.min_p > 0) depth = fminf(depth, kSlack - logf(float(q.kept.min_p)));
  depth = fminf(depth, -token_weighing::kLowest);
  const float top = found.highest;
  Candidate* const to = f.candidates + int64_t(query) * kMostCandidates;
  for_part(f, f.row(q), [&](int i, float logit) {
    if (!(logit == top || (top - logit) * q.inverse_temperature <= depth)) return;
    const int place = atomicAdd(&found.num_candidates, 1);
    if (place < kMostCandidates) to[place] = {logit, i};
  });
}

// A candidate as a number, the first of which is the likeliest, the first of equals; kNobody comes after all.
constexpr uint64_t kNobody = ~uint64_t(0);
__device__ uint64_t by_likelihood(float weight, int token) {
  return uint64_t(~__float_as_uint(weight)) << 32 | unsigned(token);
}
__device__ float weight_in(uint64_t number) { return __uint_as_float(~unsigned(number >> 32)); }
__device__ int token_in(uint64_t number) { return int(unsigned(number)); }
// The same by tokens, and back.
__device__ uint64_t turned(uint64_t number) { return number << 32 | number >> 32; }

// Ascending, by bitonic merging, for all threads; size: a power of two.
__device__ void sort_numbers(uint64_t* numbers, int size) {
  __syncthreads();
  for (int run = 2; run <= size; run *= 2)
    for (int apart = run / 2; apart > 0; apart /= 2) {
      for (int i = int(threadIdx.x); i < size; i += kThreads) {
        const int other = i ^ apart;
        if (other < i) continue;  // its partner does both
        const uint64_t a = numbers[i], b = numbers[other];
        if ((a > b) == ((i & run) == 0)) numbers[i] = b, numbers[other] = a;
      }
      __syncthreads();
    }
}

// Numbers of tokens in the order in which they are summed.
struct Ordered {
  const uint64_t* numbers;
  int count;
  bool is_turned, is_backwards;

  __device__ uint64_t at(int i) const {
    const uint64_t number = numbers[is_backwards ? count - 1 - i : i];
    return is_turned ? turned(number) : number;
  }
  __device__ double sum() const {
    double sum = 0;
    for (int i = 0; i < count; ++i) sum += double(weight_in(at(i)));
    return sum;
  }
  __device__ int draw(double uniform) const {
    double target = __dmul_rn(uniform, sum());
    for (int i = 0; i < count; ++i) {
      target -= double(weight_in(at(i)));
      if (target < 0) return token_in(at(i));
    }
    return token_in(at(count - 1));
  }
};

// How many of those in the order of their likelihood have at least min_p of the highest weight.
__device__ int num_of_min_p(const uint64_t* likeliest, int count, double min_p) {
  const double least = __dmul_rn(min_p, double(weight_in(likeliest[0])));
  int kept = 1;
  while (kept < count && double(weight_in(likeliest[kept])) >= least) ++kept;
  return kept;
}

// And how many reach a sum of weights.
__device__ int num_of_top_p(const uint64_t* likeliest, int count, double wanted) {
  double reached = 0;
  int kept = 0;
  do reached += double(weight_in(likeliest[kept++]));
  while (kept < count && reached < wanted);
  return kept;
}

// draw_of_likely, bit for bit: a block to each query, whose first thread does what has an order.
__global__ void __launch_bounds__(kThreads) draw_kernel(const Find f) {
  __shared__ uint64_t likeliest[kMostCandidates], in_order[kMostCandidates];
  __shared__ int num_weighed, num_kept, token;
  follow();
  const int query = int(blockIdx.x), me = int(threadIdx.x);
  const TokenQuery& q = f.queries[query];
  FoundTokens& found = f.found[query];
  if (q.want != Want::drawn_of_likely || found.token < 0) return;
  const int count = found.num_candidates;
  if (count > kMostCandidates) {
    if (me == 0) found.token = FoundTokens::kManyTokens;
    return;
  }
  const Candidate* const candidates = f.candidates + int64_t(query) * kMostCandidates;
  int size = 2;
  while (size < count) size *= 2;
  if (me == 0) num_weighed = 0;
  __syncthreads();
  for (int i = me; i < size; i += kThreads) {
    const Candidate c = i < count ? candidates[i] : Candidate{-INFINITY, 0};
    const float weight = i < count ? weight_of(c.logit, found.highest, q.inverse_temperature) : 0;
    likeliest[i] = weight > 0 ? by_likelihood(weight, c.token) : kNobody;
    if (weight > 0) atomicAdd(&num_weighed, 1);
  }
  sort_numbers(likeliest, size);
  const LikelyTokens& kept = q.kept;
  if (me == 0) num_kept = kept.min_p > 0 ? num_of_min_p(likeliest, num_weighed, kept.min_p) : num_weighed;
  __syncthreads();
  const int of_min_p = num_kept;
  const bool is_top_k = kept.top_k > 0 && kept.top_k <= of_min_p;
  const int before = is_top_k ? int(kept.top_k) : of_min_p;
  // Where top_k has put none in order, they are summed in that of their tokens.
  for (int i = me; i < size && !is_top_k; i += kThreads) in_order[i] = i < before ? turned(likeliest[i]) : kNobody;
  if (!is_top_k) sort_numbers(in_order, size);
  if (me == 0) {
    Ordered all{is_top_k ? likeliest : in_order, before, !is_top_k, false};
    if (kept.top_p < 1) {
      const double whole = kept.min_p > 0 || kept.top_k > 0 ? all.sum() : found.total;
      all = {likeliest, num_of_top_p(likeliest, before, __dmul_rn(kept.top_p, whole)), false, true};
    }
    found.token = token = all.draw(double(q.uniform));
  }
  __syncthreads();
  int likelier = 0;
  const float logit = f.row(q)[token];
  for (int i = me; i < count; i += kThreads) likelier += candidates[i].logit > logit;
  likelier = block_sum(likelier);
  if (me == 0) found.logit = logit, found.num_likelier = q.wants_log_sum ? likelier : 0;
}

__global__ void place_tokens_kernel(int32_t* ids, const int32_t* said, const FoundTokens* found, int64_t tokens) {
  follow();
  for (int64_t t = first_element(); t < tokens; t += element_stride())
    ids[t] = said[t] >= 0 ? said[t] : found[-1 - said[t]].token;
}

}  // namespace

void find_tokens(Stream& stream, const FindTokensArgs& args) {
  shapes::check_find_tokens(args);
  const auto queries = int64_t(args.queries.size());
  if (queries == 0) return;
  const int64_t parts = ceil_div(args.vocab, int64_t(kPart)), blocks = ceil_div(args.vocab, int64_t(kBlock));
  const auto scratch = [&](int64_t bytes) { return stream.allocator().empty(DType::u8, {bytes}); };
  const Tensor tops = scratch(queries * parts * int64_t(sizeof(Top)));
  const Tensor sums = scratch(2 * queries * blocks * int64_t(sizeof(double)));
  const Tensor shares = scratch(kRounds * queries * parts * kBounds * int64_t(sizeof(float)));
  const auto are = [&](auto&& what) { return std::ranges::any_of(args.queries, what); };
  const bool are_likely =
      std::ranges::any_of(args.queries, [](const TokenQuery& q) { return q.want == Want::drawn_of_likely; });
  const Tensor candidates = scratch(are_likely ? queries * kMostCandidates * int64_t(sizeof(Candidate)) : 0);
  auto* const of_blocks = static_cast<double*>(sums.raw());
  const Find f{.found = static_cast<FoundTokens*>(args.found.raw()),
               .candidates = static_cast<Candidate*>(candidates.raw()),
               .logits = device_data<float>(args.logits),
               .queries = upload(stream, args.queries.data(), queries),
               .changes = upload(stream, args.changes.data(), int64_t(args.changes.size())),
               .masks = upload(stream, args.masks.data(), int64_t(args.masks.size())),
               .tops = static_cast<Top*>(tops.raw()),
               .sums = of_blocks,
               .sums_at_one = of_blocks + queries * blocks,
               .shares = static_cast<float*>(shares.raw()),
               .columns = args.logits.dim(1),
               .vocab = int(args.vocab),
               .num_queries = int(queries),
               .parts = int(parts),
               .blocks = int(blocks),
               .mask_words = int(args.mask_words())};
  const LaunchShape by_query{.blocks_x = unsigned(queries), .threads = kThreads};
  const LaunchShape by_part{.blocks_x = unsigned(queries), .blocks_y = unsigned(parts), .threads = kThreads};
  const LaunchShape by_block{.blocks_x = unsigned(queries),
                             .blocks_y = unsigned(ceil_div(blocks * kLanes, int64_t(kThreads))),
                             .threads = kThreads};
  if (are([](const TokenQuery& q) { return q.num_changes() > 0; }))
    launch_following(stream, change_logits_kernel, by_query, f);
  if (are([](const TokenQuery& q) { return q.mask >= 0; })) launch_following(stream, mask_logits_kernel, by_part, f);
  launch_following(stream, tops_kernel, by_part, f);
  if (are([](const TokenQuery& q) { return q.is_drawn() || q.wants_log_sum; }))
    launch_following(stream, weights_kernel, by_block, f);
  launch_following(stream, choice_kernel, by_query, f);
  if (are([](const TokenQuery& q) { return q.wants_log_sum; })) launch_following(stream, rank_kernel, by_part, f);
  if (!are_likely) return;
  for (int round = 0; round < kRounds; ++round) launch_following(stream, shares_kernel, by_part, f, round);
  launch_following(stream, candidates_kernel, by_part, f);
  launch_following(stream, draw_kernel, by_query, f);
}

void place_tokens(Stream& stream, const Tensor& ids, const int32_t* said, const Tensor& found) {
  shapes::check_place_tokens(ids, said, found);
  const int64_t tokens = ids.numel();
  if (tokens == 0) return;
  const int32_t* const said_there = upload(stream, said, tokens);
  launch_following(stream, place_tokens_kernel, over_elements(tokens, 1), static_cast<int32_t*>(ids.raw()),
                   said_there, static_cast<const FoundTokens*>(found.raw()), tokens);
}

}  // namespace weft::cuda
