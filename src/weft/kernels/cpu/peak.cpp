// Peak: register-only loops for FLOP/s, a streaming sum for bytes/s; the best of several rounds.
#include "weft/kernels/cpu/peak.h"

#include <algorithm>
#include <chrono>

#include "weft/base/error.h"
#include "weft/base/timing.h"
#include "weft/kernels/cpu/amx.h"
#include "weft/kernels/cpu/bf16_pairs.h"
#include "weft/tensor/allocator.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace weft::cpu {
namespace {

using Clock = std::chrono::steady_clock;

// Runs `iterations` of a loop and returns something that depends on all of it.
struct FlopLoop {
  float (*run)(int64_t iterations);
  double flops_per_iteration;
};

// FMAs have a latency of 4 to 6 cycles and two ports: 12 chains keep them busy and fit 16 registers.
constexpr int kChains = 12;

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) float fma_avx2(int64_t iterations) {
  __m256 sums[kChains];
  for (__m256& sum : sums) sum = _mm256_set1_ps(1e-3f);
  const __m256 x = _mm256_set1_ps(0.999f);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) sums[j] = _mm256_fmadd_ps(sums[j], x, x);
  }
  __m256 all = sums[0];
  for (int j = 1; j < kChains; ++j) all = _mm256_add_ps(all, sums[j]);
  return _mm256_cvtss_f32(all);
}

__attribute__((target("avx512f"))) float fma_avx512(int64_t iterations) {
  __m512 sums[kChains];
  for (__m512& sum : sums) sum = _mm512_set1_ps(1e-3f);
  const __m512 x = _mm512_set1_ps(0.999f);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) sums[j] = _mm512_fmadd_ps(sums[j], x, x);
  }
  __m512 all = sums[0];
  for (int j = 1; j < kChains; ++j) all = _mm512_add_ps(all, sums[j]);
  return _mm512_cvtss_f32(all);
}

__attribute__((target("avx512f,avx512bf16"))) float dot_bf16(int64_t iterations) {
  __m512 sums[2 * kChains];
  for (__m512& sum : sums) sum = _mm512_set1_ps(1e-3f);
  const auto x = (__m512bh)_mm512_set1_epi32(0x3f003f00);  // pairs of 0.5
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 24
    for (int j = 0; j < 2 * kChains; ++j) sums[j] = _mm512_dpbf16_ps(sums[j], x, x);
  }
  __m512 all = sums[0];
  for (int j = 1; j < 2 * kChains; ++j) all = _mm512_add_ps(all, sums[j]);
  return _mm512_cvtss_f32(all);
}

// Four products of whole tile registers, of which each waits for none of the others.
float dot_tiles(int64_t iterations) {
  static constexpr amx::Shapes kShapes = [] {
    amx::Shapes shapes;
    for (int tile = 0; tile < 8; ++tile) shapes.set(tile, amx::kRows, amx::kRowBytes);
    return shapes;
  }();
  alignas(64) float sums[amx::kTileBytes / 4] = {};
  amx::use(kShapes);
  amx::zero<0>(), amx::zero<1>(), amx::zero<2>(), amx::zero<3>();
  amx::load<4>(sums, amx::kRowBytes), amx::load<5>(sums, amx::kRowBytes);
  for (int64_t i = 0; i < iterations; ++i)
    amx::dot_bf16<0, 4, 5>(), amx::dot_bf16<1, 4, 5>(), amx::dot_bf16<2, 4, 5>(), amx::dot_bf16<3, 4, 5>();
  amx::store<0>(sums, amx::kRowBytes);
  amx::release();
  return sums[0];
}
constexpr double kFlopsOfTiles = 4 * 2.0 * amx::kRows * amx::kRows * 32;

FlopLoop loop_for(DType type) {
  if (type == DType::bf16 && amx::can_use()) return {dot_tiles, kFlopsOfTiles};
  if (type == DType::bf16 && are_bf16_pairs_fast()) return {dot_bf16, 2 * kChains * 64.0};
  if (__builtin_cpu_supports("avx512f")) return {fma_avx512, kChains * 32.0};
  return {fma_avx2, kChains * 16.0};
}
#else
float fma_plain(int64_t iterations) {
  float sums[4 * kChains] = {};
  for (int64_t i = 0; i < iterations; ++i) {
    for (float& sum : sums) sum = sum * 0.999f + 0.5f;
  }
  float all = 0;
  for (const float sum : sums) all += sum;
  return all;
}

FlopLoop loop_for(DType) { return {fma_plain, 4 * kChains * 2.0}; }
#endif

double seconds_of(FunctionRef<void()> work) {
  const auto start = Clock::now();
  work();
  return seconds_since(start);
}

// Words fetched into L2 before their turn: which of these is fastest, and by how much, machines differ in.
constexpr int64_t kAheads[] = {(2 << 10) / 8, (8 << 10) / 8, (32 << 10) / 8};
constexpr int64_t kWords = (256 << 20) / 8, kGrain = (1 << 20) / 8;

#if defined(__x86_64__)
__attribute__((target("avx2")))
#endif
uint64_t
sum_words(const uint64_t* words, int64_t count, int64_t ahead) {
  uint64_t sums[64] = {};
  for (int64_t i = 0; i + 64 <= count; i += 64) {
    for (int j = 0; j < 64; j += 8) __builtin_prefetch(words + i + ahead + j, 0, 2);
    for (int j = 0; j < 64; ++j) sums[j] += words[i + j];
  }
  uint64_t all = 0;
  for (const uint64_t sum : sums) all += sum;
  return all;
}

}  // namespace

double measure_peak_flops(ThreadTeam& team, DType type) {
  check(type == DType::f32 || type == DType::bf16 || type == DType::f16, "peak: {} has no matrix products on CPUs",
        name_of(type));
  const FlopLoop loop = loop_for(type);
  constexpr int64_t kIterations = 200'000;  // some milliseconds
  constexpr int kRounds = 60;
  double best = 1e30;
  for (int round = 0; round < kRounds; ++round) {
    best = std::min(best, seconds_of([&] {
                      team.run([&](int) {
                        volatile float sink = loop.run(kIterations);
                        (void)sink;
                      });
                    }));
  }
  return loop.flops_per_iteration * double(kIterations) * team.size() / best;
}

ReadProbe::ReadProbe(ThreadTeam& team) : team_(team), words_(memory_.empty(DType::i64, {kWords})) {
  auto* const words = static_cast<uint64_t*>(words_.raw());
  team_.parallel_for(kWords, kGrain, [&](int64_t begin, int64_t end, int) {
    std::fill(words + begin, words + end, uint64_t(begin));
  });
  pass();
  double best = 0;
  int64_t best_ahead = 0;
  for (int round = 0; round < 3; ++round) {
    for (const int64_t ahead : kAheads) {
      ahead_ = ahead;
      if (const double rate = pass(); rate > best) best = rate, best_ahead = ahead;
    }
  }
  ahead_ = best_ahead;
}

double ReadProbe::pass() {
  const auto* const words = static_cast<const uint64_t*>(words_.raw());
  const double seconds = seconds_of([&] {
    team_.parallel_for(kWords, kGrain, [&](int64_t begin, int64_t end, int) {
      volatile uint64_t sink = sum_words(words + begin, end - begin, ahead_);
      (void)sink;
    });
  });
  return double(kWords) * 8 / seconds;
}

double measure_read_bandwidth(ThreadTeam& team) {
  constexpr int kPasses = 8;
  ReadProbe probe(team);
  double best = 0;
  for (int i = 0; i < kPasses; ++i) best = std::max(best, probe.pass());
  return best;
}

}  // namespace weft::cpu
