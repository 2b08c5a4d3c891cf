// PairBatches: documents two by two.
#include "weft/data/pair_batches.h"

#include <algorithm>
#include <numeric>

#include "weft/base/ceil_div.h"
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

int64_t PairBatches::index_of(int64_t step, int64_t item) const {
  const uint64_t kPurpose = name_hash("data.pairs_epoch");
  const int64_t sample = step * options_.global_batch + item, epoch = sample / num_pairs();
  const Philox4 bits = philox(options_.seed, uint64_t(epoch), kPurpose);
  const Permutation shuffled(uint64_t(num_pairs()), to_number(bits));
  return int64_t(shuffled(uint64_t(sample % num_pairs())));
}

PairBatches::Rows PairBatches::fitted(std::vector<Item> items) const {
  std::vector<int32_t> lengths;
  for (const Item& i : items) lengths.push_back(i.lengths[0] + i.lengths[1]);
  return {std::move(items), best_fit(lengths, options_.seq_len)};
}

std::shared_ptr<const PairBatches::Rows> PairBatches::rows_of(int64_t step) const {
  const std::lock_guard lock(mutex_);
  if (step != last_step_) {
    std::vector<Item> items;
    for (int64_t i = 0; i < options_.global_batch; ++i) items.push_back(item(index_of(step, i)));
    last_rows_ = std::make_shared<const Rows>(fitted(std::move(items)));
    last_step_ = step;
  }
  return last_rows_;
}

PairBatches::Rows PairBatches::rows_in_order(int64_t num_pairs) const {
  std::vector<Item> items;
  for (int64_t i = 0; i < num_pairs; ++i) items.push_back(item(i));
  return fitted(std::move(items));
}

int64_t PairBatches::num_micro_batches(int64_t step, int64_t most) const {
  return ceil_div(int64_t(rows_of(step)->rows.size()), options_.global_batch / most);
}

void PairBatches::fill(int64_t step, int32_t first_row, int32_t rows, Batch& batch) const {
  check(step >= 0 && first_row >= 0 && rows >= 0 && rows <= options_.global_batch - first_row,
        "rows [{}, {} + {}) of step {} are outside the {} of a batch", first_row, first_row, rows, step,
        options_.global_batch);
  fill(*rows_of(step), first_row, rows, batch);
}

void PairBatches::fill(const Rows& all, int64_t first, int32_t count, Batch& batch) const {
  batch.reset(count, options_.seq_len);
  for (int32_t r = 0; r < count; ++r) {
    BatchRow row(batch, r);
    if (const auto from = size_t(first + r); from < all.rows.size())
      for (const PlacedItem& placed : all.rows[from])
        for (size_t half = 0; half < 2; ++half) fill_half(all.items[size_t(placed.item)], half, row);
    row.pad();
  }
  batch.sequence_starts.push_back(count * options_.seq_len);
}

void PairBatches::fill_half(const Item& item, size_t half, BatchRow& row) const {
  const Pair& pair = pairs_[size_t(item.pair)];
  const auto length = size_t(item.lengths[half]);
  std::vector<int32_t> ids(length + 1);
  std::vector<uint8_t> is_learned(length + 1);
  part_.file->read(pair.begin[half], ids, is_learned);
  row.begin_sequence();
  for (size_t t = 0; t < length; ++t) row.put(ids[t], is_learned[t + 1] ? ids[t + 1] : -1);
}

}  // namespace weft
