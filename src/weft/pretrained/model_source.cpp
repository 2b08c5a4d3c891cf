// ModelSource: parameters from stored tensors.
#include "weft/pretrained/model_source.h"

#include <algorithm>
#include <unordered_set>

#include "weft/base/nearest.h"
#include "weft/pretrained/param_values.h"

namespace weft {

namespace {

// A row of a matrix of one is a vector: which of the two a tensor is differs between programs.
std::span<const int64_t> without_leading_ones(std::span<const int64_t> dims) {
  while (dims.size() > 1 && dims.front() == 1) dims = dims.subspan(1);
  return dims;
}

}  // namespace

ModelSource::ModelSource(std::string path, SourceKind kind, ModelConfig config)
    : path_(std::move(path)), kind_(kind), config_(std::move(config)) {}

const StoredInfo& ModelSource::find_stored(const ParamNames& names, const std::string& stored,
                                           std::string_view base) const {
  const StoredInfo* info = tensors_->find(stored);
  if (!info && !base.empty() && stored.starts_with(base)) info = tensors_->find(stored.substr(base.size()));
  if (!info) throw Error("{} has no tensor {}, which the {} model needs", tensors_->path(), stored, config_.family);
  const std::vector<int64_t> dims = names.stored_dims();
  if (!std::ranges::equal(without_leading_ones(info->dims), without_leading_ones(dims)))
    throw Error("{}: tensor {} has another shape than [{}], which the model's configuration needs", tensors_->path(),
                info->to_text(), fmt::join(dims, ", "));
  return *info;
}

void ModelSource::refuse_unknown(std::string_view base, std::span<const std::string_view> ignored) const {
  std::unordered_set<const StoredInfo*> used;
  for (const auto& [name, bound] : bound_) used.insert(bound.stored.begin(), bound.stored.end());
  for (const StoredInfo& info : tensors_->all()) {
    const bool is_ignored = std::ranges::any_of(ignored, [&](std::string_view pattern) {
      const bool has_base = !base.empty() && pattern.starts_with(base);
      return matches_pattern(info.name, pattern) ||
             (has_base && matches_pattern(info.name, pattern.substr(base.size())));
    });
    if (!used.contains(&info) && !is_ignored)
      throw Error("{}: tensor {} belongs to no part of a {} model with this configuration", tensors_->path(),
                  info.to_text(), config_.family);
  }
}

void ModelSource::bind(std::unique_ptr<StoredTensors> tensors, std::vector<ParamNames> names, std::string_view base,
                       std::span<const std::string_view> ignored) {
  tensors_ = std::move(tensors);
  names_ = std::move(names);
  for (const ParamNames& n : names_) {
    Bound bound{&n, {}};
    for (const std::string& stored : n.stored) bound.stored.push_back(&find_stored(n, stored, base));
    bound_.emplace(n.param, std::move(bound));
  }
  refuse_unknown(base, ignored);
}

const ModelSource::Bound& ModelSource::find_bound(const std::string& param) const {
  const auto found = bound_.find(param);
  if (found == bound_.end()) throw Error("{} has no parameter {}", path_, param);
  return found->second;
}

std::optional<DType> ModelSource::dtype_of(const std::string& param) const {
  const std::optional<DType> dtype = find_bound(param).stored.front()->dtype;
  return dtype && is_float(*dtype) ? dtype : std::nullopt;
}

void ModelSource::read(const std::string& param, int64_t first, std::span<float> out) const {
  const auto& [names, stored] = find_bound(param);
  check(first >= 0 && first + int64_t(out.size()) <= names->shape.numel(), "{} elements from {} of {} {}", out.size(),
        first, param, names->shape);
  names->each_run(
      first, int64_t(out.size()), [&](size_t tensor, int64_t stored_first, int64_t step, int64_t at, int64_t count) {
        tensors_->read(*stored[tensor], stored_first, step, out.subspan(size_t(at - first), size_t(count)));
      });
  if (names->values == ValueMap::same) return;
  for (float& x : out) {
    const float value = value_of_stored(names->values, x);
    if (std::isnan(value))
      throw Error("{}: {} is {}, which stands for no number: the file is damaged, or of another kind of model", path_,
                  names->stored.front(), x);
    x = value;
  }
}

void ModelSource::StoredValues::copy(int64_t first, std::span<std::byte> out) const {
  const size_t size = size_of(dtype);
  names->each_run(first, int64_t(out.size() / size),
                  [&](size_t tensor, int64_t stored_first, int64_t step, int64_t at, int64_t count) {
                    const std::byte* from = stored[tensor] + size_t(stored_first) * size;
                    std::byte* to = out.data() + size_t(at - first) * size;
                    if (step == 1) return void(std::memcpy(to, from, size_t(count) * size));
                    for (int64_t i = 0; i < count; ++i, from += size_t(step) * size, to += size)
                      std::memcpy(to, from, size);
                  });
}

std::optional<ModelSource::StoredValues> ModelSource::values_of(const std::string& param) const {
  const auto found = bound_.find(param);
  if (found == bound_.end()) return {};
  const auto& [names, stored] = found->second;
  const std::optional<DType> dtype = stored.front()->dtype;
  if (names->values != ValueMap::same || !dtype || !is_float(*dtype)) return {};
  StoredValues all{names, *dtype, {}};
  for (const StoredInfo* info : stored) {
    const std::optional<Bytes> bytes = tensors_->bytes(*info);
    if (info->dtype != dtype || !bytes || bytes->size() != size_t(info->numel()) * size_of(*dtype)) return {};
    all.stored.push_back(bytes->data());
  }
  return all;
}

std::optional<ModelSource::RowsOfBlocks> ModelSource::blocks_of(const std::string& param) const {
  const auto found = bound_.find(param);
  if (found == bound_.end()) return {};
  const auto& [names, stored] = found->second;
  if (names->shape.rank() < 2 || names->is_transposed || names->values != ValueMap::same) return {};
  if (names->num_matrices > 0 && !names->rows.keeps_order()) return {};
  RowsOfBlocks all{{}, {}, names->num_rows(), names->rows, names->cols, tensors_.get()};
  bool is_rounded = false;
  for (const StoredInfo* info : stored) {
    const std::optional<StoredBlocks> blocks = tensors_->blocks(*info);
    is_rounded |= !blocks && tensors_->is_in_other_blocks(*info);
    if (is_rounded) continue;
    if (!blocks || (!all.stored.empty() && blocks->type != all.type)) return {};
    if (!blocks->bytes.empty() && names->num_cols() % block_elements(blocks->type) != 0) return {};
    all.type = blocks->type;
    all.stored.push_back({blocks->bytes, info});
  }
  const auto is_cut = [&] {
    return all.cols.run % block_elements(all.type) != 0 || all.stored.front().bytes.empty();
  };
  if (is_rounded || (!all.cols.keeps_order() && is_cut())) all.type = BlockType::q8_0, all.stored.clear();
  return all;
}

void load_value(Context& context, const ModelSource& source, const Param& param) {
  const auto stored = source.values_of(param.name);
  if (stored && stored->dtype == param.value.dtype()) {
    return copy_values(context, param, [&](int64_t first, std::span<std::byte> out) { stored->copy(first, out); });
  }
  read_values(context, param, [&](int64_t first, std::span<float> out) { source.read(param.name, first, out); });
}

void load_values(Context& context, const ModelSource& source, std::span<Param* const> params) {
  for (Param* p : params) {
    if (p->is_only_blocks()) continue;
    load_value(context, source, *p);
    p->value_changed();
  }
}

void load_values(Context& context, const ModelSource& source, Decoder& model) {
  load_values(context, source, model.params());
  for (RouterBias* b : model.router_biases()) load_value(context, source, b->bias);
}

void require_writing(const ModelConfig& config, std::string_view named) {
  if (config.writes_texts()) return;
  if (config.scores_texts())
    throw UsageError(
        "{} scores texts and writes none: weft serve answers /classify with it, and weft logits shows its scores",
        named);
  throw UsageError(
      "{} reads texts in both directions and writes none: weft serve makes vectors of texts with it, and weft logits "
      "shows its logits",
      named);
}

}  // namespace weft
