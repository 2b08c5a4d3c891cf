// PackedRows: examples in a shuffled order, each into the first open row that has room.
#include "weft/data/packed_rows.h"

#include <algorithm>
#include <numeric>

#include "weft/base/error.h"
#include "weft/base/philox.h"
#include "weft/data/batch_row.h"
#include "weft/data/permutation.h"

namespace weft {
namespace {

const uint64_t kPackPurpose = name_hash("data.pack"), kPackedEpochPurpose = name_hash("data.packed_epoch");
constexpr size_t kOpenRows = 64;  // that an example may go into

uint64_t key_of(uint64_t seed, uint64_t index, uint64_t purpose) { return to_number(philox(seed, index, purpose)); }

}  // namespace

PackedRows::PackedRows(TokenPart part, int32_t seq_len, uint64_t seed) : part_(std::move(part)), seq_len_(seq_len) {
  check(seq_len > 0, "rows of {} tokens", seq_len);
  pack(find_examples(), seed);
  if (num_rows() == 0)
    throw UsageError(
        "{} has no example with an answer in its first {} tokens: write a larger train.seq_len, or give other data",
        part_.file->path(), seq_len_);
}

std::vector<PackedRows::Example> PackedRows::find_examples() const {
  const std::span<const uint64_t> starts = part_.file->document_starts();
  std::vector<Example> examples;
  std::vector<int32_t> ids;
  std::vector<uint8_t> is_learned;
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t begin = int64_t(starts[i]);
    const int64_t end = i + 1 < starts.size() ? int64_t(starts[i + 1]) : part_.file->num_tokens();
    if (begin < part_.begin || begin >= part_.end) continue;
    const size_t tokens = size_t(std::min<int64_t>(end - begin, int64_t(seq_len_) + 1));
    const bool is_cut = int64_t(tokens) < end - begin;
    ids.resize(tokens), is_learned.resize(tokens);
    part_.file->read(begin, ids, is_learned);
    const auto targets = std::accumulate(is_learned.begin() + 1, is_learned.end(), int32_t(0));
    examples.push_back({begin, int32_t(tokens), targets, is_cut});
  }
  return examples;
}

void PackedRows::pack(std::vector<Example> found, uint64_t seed) {
  struct Row {
    std::vector<Example> examples;
    int32_t room;
  };
  std::vector<Row> open;
  row_begins_.push_back(0);
  const auto close = [&](size_t i) {
    int64_t targets = 0;
    for (const Example& e : open[i].examples) targets += e.targets;
    examples_.insert(examples_.end(), open[i].examples.begin(), open[i].examples.end());
    row_begins_.push_back(int64_t(examples_.size()));
    row_targets_.push_back(targets);
    open.erase(open.begin() + int64_t(i));
  };
  int64_t used = 0;
  const Permutation shuffled(std::max<uint64_t>(found.size(), 1), key_of(seed, 0, kPackPurpose));
  for (size_t i = 0; i < found.size(); ++i) {
    const Example& e = found[size_t(shuffled(i))];
    if (e.targets == 0) {
      ++summary_.left_out;
      continue;
    }
    const int32_t size = e.tokens - 1;
    ++summary_.examples, used += size;
    summary_.cut += e.is_cut;
    const auto room = std::ranges::find_if(open, [&](const Row& r) { return r.room >= size; });
    const size_t at = size_t(room - open.begin());
    if (room == open.end()) open.push_back({{}, seq_len_});
    open[at].examples.push_back(e), open[at].room -= size;
    if (open[at].room == 0)
      close(at);
    else if (open.size() > kOpenRows)
      close(size_t(std::ranges::min_element(open, {}, &Row::room) - open.begin()));
  }
  while (!open.empty()) close(0);
  summary_.rows = num_rows();
  summary_.filled = double(used) / std::max(1.0, double(num_rows()) * seq_len_);
}

void PackedRows::fill(int64_t row, int32_t into, Batch& batch) const {
  BatchRow filled(batch, into);
  if (row < num_rows()) {
    std::vector<int32_t> ids(size_t(seq_len_) + 1);
    std::vector<uint8_t> is_learned(size_t(seq_len_) + 1);
    for (int64_t i = row_begins_[size_t(row)]; i < row_begins_[size_t(row) + 1]; ++i) {
      const Example& e = examples_[size_t(i)];
      const size_t tokens = size_t(e.tokens);
      part_.file->read(e.begin, std::span(ids).first(tokens), std::span(is_learned).first(tokens));
      filled.begin_sequence();
      for (size_t t = 0; t + 1 < tokens; ++t) filled.put(ids[t], is_learned[t + 1] ? ids[t + 1] : -1);
    }
  }
  filled.pad();
}

PackedBatches::PackedBatches(TokenPart part, const BatchOptions& options)
    : rows_(std::move(part), options.seq_len, options.seed), options_(options) {
  check(options.global_batch > 0, "batches of {} rows", options.global_batch);
}

int64_t PackedBatches::row_of(int64_t step, int32_t row) const {
  const int64_t sample = step * options_.global_batch + row, epoch = sample / rows_.num_rows();
  const Permutation shuffled(uint64_t(rows_.num_rows()), key_of(options_.seed, uint64_t(epoch), kPackedEpochPurpose));
  return int64_t(shuffled(uint64_t(sample % rows_.num_rows())));
}

void PackedBatches::fill(int64_t step, int32_t first_row, int32_t rows, Batch& batch) const {
  check(step >= 0 && first_row >= 0 && rows >= 0 && rows <= options_.global_batch - first_row,
        "rows [{}, {} + {}) of step {} are outside the {} of a batch", first_row, first_row, rows, step,
        options_.global_batch);
  batch.reset(rows, options_.seq_len);
  for (int32_t row = 0; row < rows; ++row) rows_.fill(row_of(step, first_row + row), row, batch);
  batch.sequence_starts.push_back(rows * options_.seq_len);
}

int64_t PackedBatches::num_targets(int64_t step) const {
  int64_t targets = 0;
  for (int32_t row = 0; row < options_.global_batch; ++row) targets += rows_.num_targets(row_of(step, row));
  return targets;
}

PackedEvalBatches::PackedEvalBatches(TokenPart part, const BatchOptions& options, int64_t max_rows)
    : rows_(std::move(part), options.seq_len, options.seed), options_(options) {
  const int64_t all = rows_.num_rows(), rows = options_.global_batch;
  taken_ = max_rows > 0 ? std::min(all, max_rows) : all;
  batches_ = (taken_ + rows - 1) / rows;
}

void PackedEvalBatches::fill(int64_t batch_index, int32_t first_row, int32_t rows, Batch& batch) const {
  batch.reset(rows, options_.seq_len);
  for (int32_t row = 0; row < rows; ++row) {
    const int64_t index = batch_index * options_.global_batch + first_row + row;
    rows_.fill(index < taken_ ? index * rows_.num_rows() / taken_ : rows_.num_rows(), row, batch);
  }
  batch.sequence_starts.push_back(rows * options_.seq_len);
}

std::unique_ptr<BatchSource> make_batches(TokenPart part, const BatchOptions& options) {
  if (part.file->has_examples()) return std::make_unique<PackedBatches>(std::move(part), options);
  return std::make_unique<Batches>(std::move(part), options);
}

std::string describe(const PackedRows::Summary& s, int32_t seq_len) {
  std::string text = fmt::format("{} examples in {} rows of {} tokens, {:.0f}% of them filled", s.examples, s.rows,
                                 seq_len, 100 * s.filled);
  if (s.cut > 0) text += fmt::format("; {} are longer than a row and were cut", s.cut);
  if (s.left_out > 0) text += fmt::format("; {} have no answer within a row and are left out", s.left_out);
  return text;
}

}  // namespace weft
