// Golden models: what Hugging Face's library computes with weights that are a function of their tensors' names.
#pragma once
#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"
#include "weft/formats/safetensors.h"
#include "weft/models/model_config.h"

namespace weft {

// The library computes norms and angles in fp32, also where it is told float64.
constexpr double kExact = 1e-5, kSingle = 3e-5;
// Of sums in fp32. What a state gives is small here, and is normalised.
inline double single_bound(const ModelConfig& config) { return config.has_states() ? 10 * kSingle : kSingle; }

// Element i of a tensor: the i-th number of SplitMix64 (Steele et al., 2014) that begins at the name's FNV-1a hash,
// as 24 bits of a uniform number in [-1/2, 1/2). Vectors are half of that, and weights of norms and factors one more.
inline std::vector<float> golden_values(const std::string& name, const std::vector<int64_t>& dims) {
  if (name.ends_with("act_fn.beta")) return {0.5f};  // which are the same in all models
  if (name.ends_with("act_fn.eps")) return {-1e-6f};
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ uint64_t(uint8_t(c))) * 0x100000001b3;
  int64_t size = 1;
  for (const int64_t dim : dims) size *= dim;
  const bool is_vector = dims.size() < 2;
  const bool is_norm = name.find("norm") != std::string::npos || name.find("ln_") != std::string::npos;
  constexpr std::string_view kFactors[] = {"layer_scalar", "router.scale", "per_expert_scale"};
  const bool is_factor = std::ranges::any_of(kFactors, [&](std::string_view end) { return name.ends_with(end); });
  const double factor = is_vector ? 0.5 : 1;
  const double offset = is_vector && (is_factor || (is_norm && name.ends_with("weight"))) ? 1 : 0;
  std::vector<float> values;
  for (int64_t i = 0; i < size; ++i) {
    uint64_t z = hash + uint64_t(i + 1) * 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    z ^= z >> 31;
    values.push_back(float(offset + factor * (double(z >> 40) * 0x1p-24 - 0.5)));
  }
  return values;
}

// A model folder made from tests/pretrained/FOLDER/NAME.json: config, tensors (name to shape), inputs and results.
class GoldenModel {
 public:
  explicit GoldenModel(const std::string& name, const char* folder = "golden") {
    const std::string path = fmt::format("{}/tests/pretrained/{}/{}.json", WEFT_SOURCE_DIR, folder, name);
    golden_ = nlohmann::json::parse(std::ifstream(path));
    std::ofstream(folder_ / "config.json") << golden_["config"];
    std::vector<SafetensorsInfo> infos;
    for (const auto& item : golden_["tensors"].items())
      infos.push_back({item.key(), DType::f32, Shape(std::span<const int64_t>(dims_of(item.value())))});
    SafetensorsWriter writer(FileSystem::real(), folder_ / "model.safetensors", infos);
    for (const auto& item : golden_["tensors"].items()) {
      const std::vector<float> values = golden_values(item.key(), dims_of(item.value()));
      writer.write(std::as_bytes(std::span(values)));
    }
    writer.finish();
  }

  const std::string& path() const { return folder_.path(); }
  std::vector<int32_t> ids() const { return golden_["ids"].get<std::vector<int32_t>>(); }
  std::vector<std::vector<double>> logits() const { return rows("logits"); }
  std::vector<std::vector<double>> rows(const char* key) const {
    return golden_[key].get<std::vector<std::vector<double>>>();
  }
  bool has(const char* key) const { return golden_.contains(key); }
  int64_t number_or(const char* key, int64_t otherwise) const { return golden_.value(key, otherwise); }
  template <class T>
  std::vector<T> list(const char* key) const {
    return golden_[key].get<std::vector<T>>();
  }

  static std::vector<std::string> all() {
    std::vector<std::string> names;
    for (const auto& entry :
         std::filesystem::directory_iterator(fmt::format("{}/tests/pretrained/golden", WEFT_SOURCE_DIR)))
      names.push_back(entry.path().stem().string());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  static std::vector<int64_t> dims_of(const nlohmann::json& json) { return json.get<std::vector<int64_t>>(); }

  TemporaryFolder folder_;
  nlohmann::json golden_;
};

}  // namespace weft
