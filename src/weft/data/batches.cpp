// Batches: windows of a token file as rows of a batch.
#include "weft/data/batches.h"

#include <algorithm>
#include <numeric>

#include "weft/base/error.h"
#include "weft/base/philox.h"
#include "weft/data/permutation.h"

namespace weft {
namespace {

const uint64_t kEpochPurpose = name_hash("data.epoch");

// Document starts in [begin, end) of a file.
std::span<const uint64_t> documents_in(const TokenFile& file, int64_t begin, int64_t end) {
  const std::span<const uint64_t> all = file.document_starts();
  const auto first = std::lower_bound(all.begin(), all.end(), uint64_t(begin));
  return {first, std::lower_bound(first, all.end(), uint64_t(end))};
}

// Fills row `row` with `count` tokens from `begin` of the file and what follows each; `count` of 0 is a padding row.
void fill_row(const TokenFile& file, int64_t begin, int32_t count, bool documents, int32_t row, Batch& batch) {
  const size_t start = size_t(row) * size_t(batch.seq_len), length = size_t(batch.seq_len), used = size_t(count);
  const std::span<int32_t> ids = std::span(batch.ids).subspan(start, length);
  const std::span<int32_t> targets = std::span(batch.targets).subspan(start, length);
  const std::span<int32_t> positions = std::span(batch.positions).subspan(start, length);
  if (used > 0) {
    file.read(begin, ids.first(used));
    std::copy(ids.begin() + 1, ids.begin() + count, targets.begin());
    file.read(begin + count, targets.subspan(used - 1, 1));
  }
  std::fill(ids.begin() + count, ids.end(), 0);
  std::fill(targets.begin() + count, targets.end(), -1);
  std::iota(positions.begin(), positions.end(), 0);
  batch.num_targets += count;
  batch.sequence_starts.push_back(int32_t(start));
  if (!documents || used == 0) return;
  for (const uint64_t document : documents_in(file, begin + 1, begin + count + 1)) {
    const size_t at = size_t(document) - size_t(begin);
    targets[at - 1] = -1;
    --batch.num_targets;
    if (at == used) break;  // the next document starts after this row
    std::iota(positions.begin() + int64_t(at), positions.end(), 0);
    batch.sequence_starts.push_back(int32_t(start + at));
  }
}

void check_options(const BatchOptions& options) {
  check(options.seq_len > 0 && options.global_batch > 0, "batches: seq_len {} and global_batch {} must be positive",
        options.seq_len, options.global_batch);
}

void check_rows(const BatchOptions& options, int64_t step, int32_t first_row, int32_t rows) {
  check(step >= 0 && first_row >= 0 && rows >= 0 && rows <= options.global_batch - first_row,
        "batches: rows [{}, {} + {}) of step {} are outside the {} of a batch", first_row, first_row, rows, step,
        options.global_batch);
}

}  // namespace

void Batch::reset(int32_t new_rows, int32_t new_seq_len) {
  rows = new_rows;
  seq_len = new_seq_len;
  num_targets = 0;
  const size_t tokens = size_t(rows) * size_t(seq_len);
  for (std::vector<int32_t>* values : {&ids, &targets, &positions}) values->resize(tokens);
  next_ids.clear(), further_targets.clear();
  sequence_starts.clear();
  sequence_starts.reserve(tokens + 1);  // at most one sequence a token
}

void Batch::look_further() {
  next_ids.resize(ids.size()), further_targets.resize(ids.size());
  for (size_t s = 0; s + 1 < sequence_starts.size(); ++s) {
    const auto end = size_t(sequence_starts[s + 1]);
    for (auto t = size_t(sequence_starts[s]); t < end; ++t) {
      const bool is_last = t + 1 == end;
      next_ids[t] = targets[t] >= 0 ? targets[t] : ids[is_last ? t : t + 1];
      further_targets[t] = is_last ? -1 : targets[t + 1];
    }
  }
}

Batches::Batches(TokenPart part, BatchOptions options) : part_(std::move(part)), options_(options) {
  check_options(options_);
  const int64_t length = options_.seq_len;
  if (part_.size() < length + 1)
    throw UsageError(
        "train.seq_len = {} needs at least {} tokens of training text, but {} has only {}; write a smaller "
        "train.seq_len or give more text in data.train",
        length, length + 1, part_.file->path(), part_.size());
  windows_ = std::max<int64_t>(1, part_.size() / length - 1);
  offsets_ = std::min(length, part_.size() - windows_ * length);
}

int64_t Batches::window_start(int64_t step, int32_t row) const {
  const int64_t sample = step * options_.global_batch + row;
  const uint64_t epoch = uint64_t(sample / windows_);
  const Philox4 bits = philox(options_.seed, epoch, kEpochPurpose);
  const uint64_t key = to_number(bits);
  const int64_t offset = int64_t(uint64_t(bits[2]) * uint64_t(offsets_) >> 32);
  const Permutation shuffled(uint64_t(windows_), key);
  return offset + int64_t(shuffled(uint64_t(sample % windows_))) * options_.seq_len;
}

void Batches::fill(int64_t step, int32_t first_row, int32_t rows, Batch& batch) const {
  check_rows(options_, step, first_row, rows);
  batch.reset(rows, options_.seq_len);
  for (int32_t row = 0; row < rows; ++row) {
    const int64_t begin = part_.begin + window_start(step, first_row + row);
    fill_row(*part_.file, begin, options_.seq_len, options_.documents, row, batch);
  }
  batch.sequence_starts.push_back(rows * options_.seq_len);
}

int64_t Batches::num_targets(int64_t step) const {
  int64_t targets = int64_t(options_.global_batch) * options_.seq_len;
  if (!options_.documents) return targets;
  for (int32_t row = 0; row < options_.global_batch; ++row) {
    const int64_t begin = part_.begin + window_start(step, row);
    targets -= int64_t(documents_in(*part_.file, begin + 1, begin + options_.seq_len + 1).size());
  }
  return targets;
}

EvalBatches::EvalBatches(TokenPart part, BatchOptions options, int64_t max_rows)
    : part_(std::move(part)), options_(options) {
  check_options(options_);
  if (part_.size() < 2)
    throw UsageError(
        "evaluation needs at least 2 tokens, and of {} it has {}: name a longer text, or for a run's validation "
        "write a larger data.valid_fraction",
        part_.file->path(), part_.size());
  const int64_t rows = options_.global_batch;
  windows_ = (part_.size() - 2) / options_.seq_len + 1;
  taken_ = max_rows > 0 ? std::min(windows_, max_rows) : windows_;
  batches_ = (taken_ + rows - 1) / rows;
}

void EvalBatches::fill(int64_t batch_index, int32_t first_row, int32_t rows, Batch& batch) const {
  check_rows(options_, batch_index, first_row, rows);
  batch.reset(rows, options_.seq_len);
  for (int32_t row = 0; row < rows; ++row) {
    const int64_t index = batch_index * options_.global_batch + first_row + row;
    const int64_t window = taken_ == windows_ ? index : index * windows_ / taken_;
    const int64_t begin = part_.begin + window * options_.seq_len;
    const int64_t left = index < taken_ ? part_.end - 1 - begin : 0;
    fill_row(*part_.file, begin, int32_t(std::min<int64_t>(options_.seq_len, left)), options_.documents, row, batch);
  }
  batch.sequence_starts.push_back(rows * options_.seq_len);
}

}  // namespace weft
