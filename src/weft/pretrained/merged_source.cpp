// MergedSource: rows of a weight and of its adapter's factors.
#include "weft/pretrained/merged_source.h"

#include <cmath>
#include <mutex>
#include <unordered_map>

namespace weft {
namespace {

ModelConfig without_adapters(ModelConfig config) {
  config.lora = {};
  return config;
}

class MergedSource final : public ModelSource {
 public:
  explicit MergedSource(std::unique_ptr<ModelSource> adapted)
      : ModelSource(adapted->path(), adapted->kind(), without_adapters(adapted->config())),
        adapted_(std::move(adapted)),
        lora_(adapted_->config().lora) {
    for (const ParamNames& names : adapted_->names()) {
      if (!is_adapter(names.param)) names_.push_back(names);
      if (const size_t end = names.param.rfind(".lora_a"); end != std::string::npos && is_adapter(names.param))
        widths_.emplace(names.param.substr(0, end) + ".weight", names.num_cols());
    }
    for (const ParamNames& names : names_)
      if (names.shape.rank() == 3) expert_rows_.emplace(names.param, names.shape[1]);
  }
  const std::vector<ParamNames>& names() const override { return names_; }
  const StoredTensors& tensors() const override { return adapted_->tensors(); }
  int64_t step() const override { return adapted_->step(); }
  std::unique_ptr<Tokenizer> tokenizer() const override { return adapted_->tokenizer(); }
  std::optional<ChatTemplate::Text> chat_template() const override { return adapted_->chat_template(); }
  SpecialIds special_ids() const override { return adapted_->special_ids(); }
  SamplingDefaults sampling_defaults() const override { return adapted_->sampling_defaults(); }
  EmbeddingRule embedding_rule() const override { return adapted_->embedding_rule(); }
  ScoreRule score_rule() const override { return adapted_->score_rule(); }
  std::optional<DType> dtype_of(const std::string& param) const override { return adapted_->dtype_of(param); }

  std::optional<StoredValues> values_of(const std::string& param) const override {
    return widths_.contains(param) ? std::nullopt : adapted_->values_of(param);
  }
  void read(const std::string& param, int64_t first, std::span<float> out) const override {
    const auto width = widths_.find(param);
    if (width == widths_.end()) return adapted_->read(param, first, out);
    const int64_t in = width->second, end = first + int64_t(out.size());
    std::vector<float> row(static_cast<size_t>(in));
    for (int64_t o = first / in; o * in < end; ++o) {
      read_row(param, o, row);
      const int64_t from = std::max(first, o * in), to = std::min(end, (o + 1) * in);
      std::copy(row.begin() + (from - o * in), row.begin() + (to - o * in), out.begin() + (from - first));
    }
  }

 private:
  // The factor [r, I] of a weight, or of that of one expert; the last one is kept.
  std::shared_ptr<const std::vector<float>> factor_of(const std::string& linear, int64_t expert, int64_t in) const {
    const std::lock_guard lock(mutex_);
    if (linear != last_linear_ || expert != last_expert_) {
      auto factor = std::make_shared<std::vector<float>>(size_t(lora_.rank * in));
      adapted_->read(linear + ".lora_a", expert * lora_.rank * in, *factor);
      last_linear_ = linear, last_expert_ = expert, last_factor_ = std::move(factor);
    }
    return last_factor_;
  }

  void read_row(const std::string& param, int64_t o, std::span<float> row) const {
    const int64_t in = int64_t(row.size());
    const std::string linear = param.substr(0, param.rfind('.'));
    const auto rows = expert_rows_.find(param);
    const auto a = factor_of(linear, rows == expert_rows_.end() ? 0 : o / rows->second, in);
    std::vector<float> b(size_t(lora_.rank));
    adapted_->read(linear + ".lora_b", o * lora_.rank, b);
    adapted_->read(param, o * in, row);
    double squares = 0;
    for (size_t i = 0; i < row.size(); ++i) {
      double sum = 0;
      for (size_t k = 0; k < b.size(); ++k) sum += double(b[k]) * double((*a)[k * row.size() + i]);
      row[i] = float(double(row[i]) + double(lora_.scale()) * sum);
      squares += double(row[i]) * double(row[i]);
    }
    if (!lora_.is_dora || squares == 0) return;
    float length = 0;
    adapted_->read(linear + ".lora_magnitude", o, {&length, 1});
    for (float& x : row) x = float(double(x) * double(length) / std::sqrt(squares));
  }

  std::unique_ptr<ModelSource> adapted_;
  LoraConfig lora_;
  std::vector<ParamNames> names_;
  std::unordered_map<std::string, int64_t> widths_;       // of adapted weights: I
  std::unordered_map<std::string, int64_t> expert_rows_;  // of experts' weights [E, O, I]: O
  mutable std::mutex mutex_;
  mutable std::string last_linear_;
  mutable int64_t last_expert_ = 0;
  mutable std::shared_ptr<const std::vector<float>> last_factor_;
};

}  // namespace

std::unique_ptr<ModelSource> merge_adapters(std::unique_ptr<ModelSource> adapted) {
  check(adapted->config().lora.rank > 0, "{} has no adapters", adapted->path());
  return std::make_unique<MergedSource>(std::move(adapted));
}

}  // namespace weft
