// How attention's backward cuts the keys: into chunks that have one owner each, whichever spans read them.
//
// Spans whose keys overlap form a cluster. The keys of a cluster are cut where any of its spans begins or ends, hence
// a chunk lies wholly inside or outside of every span.
#pragma once
#include "weft/kernels/cpu/attention_plan.h"

namespace weft::cpu {

struct KeyChunk {
  int32_t k_begin = 0, k_end = 0;
  int32_t cluster = 0;
};

struct KeyCluster {
  int32_t first_span = 0, end_span = 0;  // of ChunkPlan::spans
};

// A span that has queries and keys.
struct ChunkedSpan {
  int32_t span = 0;                        // of the shape
  int32_t first_chunk = 0, end_chunk = 0;  // of its keys
  int64_t first_block = 0;                 // of its lanes, counted through the cluster
  int64_t num_blocks = 0;
  int64_t dq_block = 0;  // where its sums begin, in blocks; used when there are several chunks

  bool covers(int64_t chunk) const { return first_chunk <= chunk && chunk < end_chunk; }
  bool is_cut() const { return end_chunk - first_chunk > 1; }
};

struct ChunkPlan {
  ChunkedSpan* spans = nullptr;  // by their first key
  KeyCluster* clusters = nullptr;
  KeyChunk* chunks = nullptr;
  int32_t* cuts = nullptr;
  int64_t num_spans = 0, num_clusters = 0, num_chunks = 0, num_dq_blocks = 0;

  // Room for the plan of any shape with these spans.
  static ChunkPlan make(Arena& a, const AttentionShape& s, int64_t chunk_keys) {
    int64_t most = 2 * int64_t(s.num_spans);
    for (int i = 0; i < s.num_spans; ++i) most += ceil_div(s.spans[i].k_end - s.spans[i].k_begin, chunk_keys);
    ChunkPlan plan;
    plan.spans = a.take<ChunkedSpan>(s.num_spans), plan.clusters = a.take<KeyCluster>(s.num_spans);
    plan.chunks = a.take<KeyChunk>(most), plan.cuts = a.take<int32_t>(2 * int64_t(s.num_spans));
    return plan;
  }

  void fill(const AttentionShape& s, int64_t chunk_keys, int64_t block_lanes) {
    for (int i = 0; i < s.num_spans; ++i) {
      if (SpanLanes(s, i).is_empty()) continue;
      spans[num_spans++] = {.span = i};
    }
    const auto by_key = [&](const ChunkedSpan& a, const ChunkedSpan& b) {
      const int32_t x = s.spans[a.span].k_begin, y = s.spans[b.span].k_begin;
      return x != y ? x < y : a.span < b.span;
    };
    if (!std::is_sorted(spans, spans + num_spans, by_key)) std::sort(spans, spans + num_spans, by_key);
    for (int64_t first = 0, end = 0; first < num_spans; first = end) {
      int32_t reach = s.spans[spans[first].span].k_end;
      for (end = first + 1; end < num_spans && s.spans[spans[end].span].k_begin < reach; ++end) {
        reach = std::max(reach, s.spans[spans[end].span].k_end);
      }
      add_cluster(s, first, end, chunk_keys, block_lanes);
    }
  }

 private:
  void add_cluster(const AttentionShape& s, int64_t first, int64_t end, int64_t chunk_keys, int64_t block_lanes) {
    int32_t* last = cuts;
    for (int64_t i = first; i < end; ++i) {
      *last++ = s.spans[spans[i].span].k_begin, *last++ = s.spans[spans[i].span].k_end;
    }
    std::sort(cuts, last);
    last = std::unique(cuts, last);
    KeyChunk* const chunks_begin = chunks + num_chunks;
    for (const int32_t* cut = cuts; cut + 1 < last; ++cut) {
      for (int64_t key = cut[0]; key < cut[1]; key += chunk_keys) {
        chunks[num_chunks++] = {int32_t(key), int32_t(std::min<int64_t>(key + chunk_keys, cut[1])),
                                int32_t(num_clusters)};
      }
    }
    const auto chunk_at = [&](int32_t key) {
      const auto begins_before = [](const KeyChunk& chunk, int32_t k) { return chunk.k_begin < k; };
      return int32_t(std::lower_bound(chunks_begin, chunks + num_chunks, key, begins_before) - chunks);
    };
    int64_t block = 0;
    for (int64_t i = first; i < end; ++i) {
      const SpanLanes lanes(s, spans[i].span);
      spans[i].first_chunk = chunk_at(int32_t(lanes.k_begin));
      spans[i].end_chunk = chunk_at(int32_t(lanes.k_begin + lanes.num_k));
      spans[i].first_block = block, spans[i].num_blocks = ceil_div(lanes.num_lanes(), block_lanes);
      spans[i].dq_block = num_dq_blocks;
      block += spans[i].num_blocks;
      if (spans[i].is_cut()) num_dq_blocks += spans[i].num_blocks * s.num_kv_heads;
    }
    clusters[num_clusters++] = {int32_t(first), int32_t(end)};
  }
};

}  // namespace weft::cpu
