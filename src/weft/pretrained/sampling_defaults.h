// SamplingDefaults: how the makers of a model want its tokens chosen, as its files say.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

class GgufFile;
class GgufMetadata;
class JsonView;

// Of a Hugging Face folder: also the tokens that end a text.
inline constexpr std::string_view kGenerationConfigName = "generation_config.json";

// As SamplingOptions has them (serve/sampler.h); nothing where the files say nothing.
struct SamplingDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;  // 0: all

  bool operator==(const SamplingDefaults&) const = default;
  bool is_empty() const { return *this == SamplingDefaults(); }
};

// "temperature 0.6, top_p 0.95, top_k 20"
std::string to_text(const SamplingDefaults& defaults);

// Of that file, as Hugging Face's library has it. Throws Error naming what is no number.
SamplingDefaults read_sampling_defaults(const JsonView& generation_config);
void write_sampling_defaults(nlohmann::json& generation_config, const SamplingDefaults& defaults);

// Of the keys "general.sampling.*", as llama.cpp has them. Throws Error naming what is no number.
SamplingDefaults read_gguf_sampling_defaults(const GgufFile& file);
void write_gguf_sampling_defaults(GgufMetadata& metadata, const SamplingDefaults& defaults);

}  // namespace weft
