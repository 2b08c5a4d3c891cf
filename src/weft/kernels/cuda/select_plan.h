// How rows that select keys are cut: tiles of rows whose scores a block computes, and chunks of rows whose scores are
// there at once; needs no GPU.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "weft/kernels/cuda/paged_plan.h"
#include "weft/kernels/kernels.h"

namespace weft::cuda {

inline constexpr int kScoredKeys = 512;    // that a block computes scores of, for each row of its tile
inline constexpr int kScoresOfThread = 8;  // neighbours that a thread looks at; scores of a row have room for all
inline constexpr int64_t kMostScores = int64_t(1) << 24;  // of a chunk of several rows: 64 MiB

// Keys of a sequence, up to a row's own.
struct KeysOfRow {
  int64_t scores = 0;  // where those of its keys begin among the chunk's
  int32_t num_keys = 0;
  int32_t table = 0;  // where blocks are listed
};
// Rows of one sequence, each of which sees a key more than the one before it.
struct ScoreTile {
  int32_t row = 0, num_rows = 0;
};
struct SelectChunk {
  int32_t row_begin = 0, row_end = 0;
  int32_t tile_begin = 0, tile_end = 0;
  int32_t longest = 0;  // the keys that a row of the tiles sees
};
struct SelectPlan {
  std::vector<KeysOfRow> rows;
  std::vector<ScoreTile> tiles;  // of rows that see more than `most` keys: the others need no scores
  std::vector<SelectChunk> chunks;
  int64_t num_scores = 0;  // of the chunk that has most
};

// Rows whose heads are lanes of one tile. A function of heads alone, as is the order in which these are summed.
constexpr int rows_of_tile(int64_t heads, int tile_lanes) {
  return std::max(tile_lanes / int(std::clamp<int64_t>(heads, 1, tile_lanes)), 1);
}

// The sequences' rows ascend and are all there are.
inline SelectPlan plan_selection(const std::vector<PagedRowsOf>& sequences, int64_t most, int tile_rows,
                                 int64_t most_scores) {
  SelectPlan plan;
  int64_t scores = 0;  // of the chunk so far
  for (const PagedRowsOf& s : sequences) {
    bool is_open = false;  // the last tile is for further rows of this sequence
    for (int32_t row = s.q_begin; row < s.q_end; ++row) {
      const int32_t num_keys = s.num_keys - (s.q_end - 1 - row);
      const int64_t room = num_keys > most ? round_up(num_keys, kScoresOfThread) : 0;
      if (plan.chunks.empty() || (scores > 0 && scores + room > most_scores)) {
        const auto tile = int32_t(plan.tiles.size());
        plan.chunks.push_back({row, row, tile, tile});
        scores = 0, is_open = false;
      }
      plan.rows.push_back({scores, num_keys, s.table});
      SelectChunk& chunk = plan.chunks.back();
      ++chunk.row_end;
      if (room == 0) continue;
      if (!is_open || plan.tiles.back().num_rows == tile_rows) plan.tiles.push_back({row, 0});
      ++plan.tiles.back().num_rows, is_open = true;
      chunk.tile_end = int32_t(plan.tiles.size());
      chunk.longest = std::max(chunk.longest, num_keys);
      scores += room;
      plan.num_scores = std::max(plan.num_scores, scores);
    }
  }
  return plan;
}

// Grows in steps, so that graphs of steps of serving hold for many of them (ADR 0019).
constexpr int64_t room_for_scores(int64_t num_scores, int64_t most_scores) {
  return std::min(roomy(num_scores), std::max(num_scores, most_scores));
}
constexpr int64_t blocks_of_keys(int32_t longest) { return roomy(ceil_div(longest, int64_t(kScoredKeys))); }

// select_keys (cuda.h) in chunks of so many scores. select_keys.cu
void select_keys_in_chunks(Stream&, const SelectKeysArgs&, int64_t most_scores);

}  // namespace weft::cuda
