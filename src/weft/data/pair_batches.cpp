// PairBatches: documents two by two.
#include "weft/data/pair_batches.h"

#include <algorithm>
#include <numeric>

#include "weft/base/error.h"
#include "weft/base/philox.h"
#include "weft/data/permutation.h"

namespace weft {

PairBatches::PairBatches(TokenPart part, const BatchOptions& options) : part_(std::move(part)), options_(options) {
  check(options.seq_len > 1 && options.seq_len % 2 == 0, "pairs in rows of {} tokens", options.seq_len);
  const std::span<const uint64_t> starts = part_.file->document_starts();
  check(starts.size() % 2 == 0, "{} has {} documents, which are no pairs", part_.file->path(), starts.size());
  std::vector<int32_t> ids[2];
  std::vector<uint8_t> is_learned[2];
  Digester digester;
  for (size_t i = 0; i + 1 < starts.size(); i += 2) {
    Pair pair{};
    bool is_cut = false;
    for (size_t half = 0; half < 2; ++half) {
      const size_t document = i + half;
      const int64_t begin = int64_t(starts[document]);
      const int64_t end = document + 1 < starts.size() ? int64_t(starts[document + 1]) : part_.file->num_tokens();
      const auto tokens = int32_t(std::min<int64_t>(end - begin, int64_t(options.seq_len / 2) + 1));
      is_cut |= tokens < end - begin;
      ids[half].resize(size_t(tokens)), is_learned[half].resize(size_t(tokens));
      part_.file->read(begin, ids[half], is_learned[half]);
      pair.begin[half] = begin, pair.tokens[half] = tokens;
      pair.targets[half] = std::accumulate(is_learned[half].begin() + 1, is_learned[half].end(), int32_t(0));
      if (half == 1) pair.is_desirable = is_learned[half][0] != 0;
    }
    const bool is_usable = pair.targets[0] > 0 && pair.targets[1] > 0;
    (is_usable ? num_cut_ : num_left_out_) += is_usable ? is_cut : 1;
    if (!is_usable) continue;
    pairs_.push_back(pair);
    digester.update(std::as_bytes(std::span(pair.tokens)));
    for (size_t half = 0; half < 2; ++half) {
      digester.update(std::as_bytes(std::span(ids[half])));
      digester.update(std::as_bytes(std::span(is_learned[half])));
    }
  }
  content_ = digester.finish();
  if (pairs_.empty())
    throw UsageError("{} has no two answers within {} tokens each: write a larger train.seq_len, or give other data",
                     part_.file->path(), options.seq_len / 2);
}

int64_t PairBatches::index_of(int64_t step, int64_t row) const {
  const uint64_t kPurpose = name_hash("data.pairs_epoch");
  const int64_t sample = step * options_.global_batch + row, epoch = sample / num_pairs();
  const Philox4 bits = philox(options_.seed, uint64_t(epoch), kPurpose);
  const Permutation shuffled(uint64_t(num_pairs()), to_number(bits));
  return int64_t(shuffled(uint64_t(sample % num_pairs())));
}

void PairBatches::fill(int64_t step, int32_t first_row, int32_t rows, Batch& batch) const {
  check(step >= 0 && first_row >= 0 && rows >= 0 && rows <= options_.global_batch - first_row,
        "rows [{}, {} + {}) of step {} are outside the {} of a batch", first_row, first_row, rows, step,
        options_.global_batch);
  batch.reset(rows, options_.seq_len);
  for (int32_t row = 0; row < rows; ++row) fill_row(&pair(index_of(step, first_row + row)), row, batch);
  batch.sequence_starts.push_back(rows * options_.seq_len);
}

void PairBatches::fill_in_order(int64_t first, int32_t rows, Batch& batch) const {
  batch.reset(rows, options_.seq_len);
  for (int32_t row = 0; row < rows; ++row)
    fill_row(first + row < num_pairs() ? &pair(first + row) : nullptr, row, batch);
  batch.sequence_starts.push_back(rows * options_.seq_len);
}

void PairBatches::fill_row(const Pair* pair, int32_t row, Batch& batch) const {
  const auto length = size_t(options_.seq_len / 2);
  std::vector<int32_t> ids(length + 1);
  std::vector<uint8_t> is_learned(length + 1);
  for (size_t half = 0; half < 2; ++half) {
    const size_t start = size_t(row) * 2 * length + half * length, tokens = pair ? size_t(pair->tokens[half]) : 1;
    batch.sequence_starts.push_back(int32_t(start));
    if (pair) part_.file->read(pair->begin[half], std::span(ids).first(tokens), std::span(is_learned).first(tokens));
    for (size_t t = 0; t < length; ++t) {
      const bool is_used = t + 1 < tokens;
      batch.ids[start + t] = is_used ? ids[t] : 0;
      batch.targets[start + t] = is_used && is_learned[t + 1] ? ids[t + 1] : -1;
      batch.positions[start + t] = int32_t(t);
    }
    if (pair) batch.num_targets += pair->targets[half];
  }
}

}  // namespace weft
