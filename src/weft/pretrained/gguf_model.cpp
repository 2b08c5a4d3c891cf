// GGUF models: blocks of a file as elements.
#include "weft/pretrained/gguf_model.h"

#include <algorithm>
#include <charconv>

#include "weft/formats/ggml_blocks.h"
#include "weft/pretrained/embedding_rule.h"
#include "weft/pretrained/held_blocks.h"

namespace weft {
namespace {

std::optional<DType> dtype_of(GgmlType type) {
  switch (type) {
    case GgmlType::f32: return DType::f32;
    case GgmlType::f16: return DType::f16;
    case GgmlType::bf16: return DType::bf16;
    default: return {};
  }
}

// A tensor's elements are blocks along its rows; strides only occur where an element is a block.
class GgufTensors : public StoredTensors {
 public:
  explicit GgufTensors(const GgufFile& file) : file_(file) {
    std::vector<StoredInfo> all;
    for (const GgufTensor& t : file.tensors()) {
      if (!can_convert(t.type))
        throw Error(
            "{}: tensor {} is {}, which weft does not convert; F32, F16, BF16, Q8_0, MXFP4, IQ4_NL, IQ4_XS, Q4_0 to "
            "Q5_1 and Q2_K to Q6_K are what it reads",
            file.path(), t.name, name_of(t.type));
      all.push_back({t.name, std::string(name_of(t.type)), {t.dims.rbegin(), t.dims.rend()}, dtype_of(t.type)});
    }
    set_all(std::move(all));
  }
  const std::string& path() const override { return file_.path(); }

  void read(const StoredInfo& info, int64_t first, int64_t stride, std::span<float> out) const override {
    const GgufTensor& tensor = file_.tensor(info.name);
    const auto block = int64_t(info_of(tensor.type).block);
    const Bytes bytes = file_.bytes(tensor);
    for (size_t done = 0; done < out.size();) {
      const int64_t at = first + int64_t(done) * stride, begin = at / block * block;
      const int64_t left = int64_t(out.size() - done);
      // As many whole blocks as hold what is left, a part at a time.
      const int64_t end =
          stride == 1 ? std::min(begin + kElements, (at + left + block - 1) / block * block) : begin + block;
      std::array<float, kElements> values;
      const uint64_t from = ggml_bytes(tensor.type, uint64_t(begin)).value();
      const uint64_t size = ggml_bytes(tensor.type, uint64_t(end - begin)).value();
      dequantize(tensor.type, bytes.subspan(from, size), std::span(values).first(size_t(end - begin)));
      const int64_t count = stride == 1 ? std::min(left, end - at) : 1;
      std::copy_n(values.begin() + (at - begin), count, out.begin() + int64_t(done));
      done += size_t(count);
    }
  }
  std::optional<Bytes> bytes(const StoredInfo& info) const override {
    return info.dtype ? std::optional(file_.bytes(file_.tensor(info.name))) : std::nullopt;
  }
  std::optional<StoredBlocks> blocks(const StoredInfo& info) const override {
    const GgufTensor& tensor = file_.tensor(info.name);
    if (const auto type = block_type_of(tensor.type)) return StoredBlocks{*type, file_.bytes(tensor)};
    return {};
  }
  bool is_in_other_blocks(const StoredInfo& info) const override {
    return !blocks(info) && info_of(file_.tensor(info.name).type).block > 1;
  }

 private:
  static constexpr int64_t kElements = 1024;  // a multiple of every block
  const GgufFile& file_;
};

class OpenedGguf {
 protected:
  explicit OpenedGguf(const std::string& path) : opened_(path) {}
  GgufFile opened_;
};
class OpenedGgufTensors final : OpenedGguf, public GgufTensors {
 public:
  explicit OpenedGgufTensors(const std::string& path) : OpenedGguf(path), GgufTensors(opened_) {}
};

// The number in "blk.12.attn_q.weight"; -1: the tensor is in no block.
int64_t block_of(std::string_view name) {
  constexpr std::string_view kBlock = "blk.";
  int64_t number = -1;
  if (name.starts_with(kBlock)) std::from_chars(name.data() + kBlock.size(), name.data() + name.size(), number);
  return number;
}

// Of what a family's files may hold otherwise, where they hold this tensor.
struct OtherRows {
  std::string_view tensor;
  std::span<const NameRow> rows;
  std::optional<StateKind> rule = {};  // of models with states by this one alone
};
constexpr NameRow kBothHalves[] = {
    {"layers.#.moe.experts.gate", "blk.#.ffn_gate_up_exps", {.part = Part::gate}},
    {"layers.#.moe.experts.up", "blk.#.ffn_gate_up_exps", {.part = Part::up}},
};
// Of the first files of Qwen3-Next; Mamba-2's inputs have the same name.
constexpr NameRow kGroupedInputs[] = {
    {"layers.#.state.query", "blk.#.ssm_in", {.part = Part::state_query, .is_grouped = true}},
    {"layers.#.state.key", "blk.#.ssm_in", {.part = Part::state_key, .is_grouped = true}},
    {"layers.#.state.value", "blk.#.ssm_in", {.part = Part::state_value, .is_grouped = true}},
    {"layers.#.state.gate", "blk.#.ssm_in", {.part = Part::state_gate, .is_grouped = true}},
};
constexpr NameRow kHalves[] = {{"layers.#.moe.experts.gate", "blk.#.ffn_gate_exps"},
                               {"layers.#.moe.experts.up", "blk.#.ffn_up_exps"}};
constexpr OtherRows kOthers[] = {{"blk.#.ffn_gate_up_exps.weight", kBothHalves},
                                 {"blk.#.ffn_gate_exps.weight", kHalves},
                                 {"blk.#.ssm_in.weight", kGroupedInputs, StateKind::delta}};

// Whether it has the part that predicts further on as weft knows it: its layer sees all tokens.
bool has_mtp(const GgufFile& file, const ModelConfig& c) {
  const std::string projection = fmt::format("blk.{}.nextn.eh_proj.weight", c.layers);
  return c.mtp_layers > 0 && c.window == 0 && file.find_tensor(projection);
}

std::vector<NameRow> table_of(const GgufFamily& family, const ModelConfig& config, const GgufFile& file) {
  std::vector<NameRow> table = rows_of(family, config);
  for (const OtherRows& other : kOthers)
    if (other.rule.value_or(config.state_rule) == config.state_rule &&
        std::ranges::any_of(file.tensors(), [&](const auto& t) { return matches_pattern(t.name, other.tensor); }))
      table = joined({other.rows, table});
  return table;
}

}  // namespace

GgufModel read_gguf_model(const GgufFile& file, bool with_mtp) {
  const GgufDescription description = describe(file);
  GgufModel model;
  model.config = config_of(description);
  if (!with_mtp || !has_mtp(file, model.config)) model.config.mtp_layers = 0;
  model.names = names_of(model.config, table_of(gguf_family_of(description), model.config, file));
  const RopeScaling::Kind scaling = model.config.rope_scaling.kind;
  if (scaling == RopeScaling::Kind::longrope || scaling == RopeScaling::Kind::proportional)
    for (const auto& [name, factors] : description.factors) model.not_weights.push_back(name + ".weight");
  // Keys of layers that attend to those of others.
  for (int64_t i = model.config.layers - model.config.shared_kv_layers; i < model.config.layers; ++i)
    for (const char* part : {"attn_k", "attn_v", "attn_k_norm"})
      model.not_weights.push_back(fmt::format("blk.{}.{}.weight", i, part));
  for (const std::string_view name : kGgufDense) model.not_weights.emplace_back(name);
  // Layers behind the model's, which predict a token further on.
  if (description.keys.contains("nextn_predict_layers"))
    for (const GgufTensor& tensor : file.tensors())
      if (block_of(tensor.name) >= model.config.layers) model.not_weights.push_back(tensor.name);
  return model;
}

std::unique_ptr<StoredTensors> stored_tensors(const GgufFile& file) { return std::make_unique<GgufTensors>(file); }

std::unique_ptr<StoredTensors> open_gguf_tensors(const std::string& path) {
  return std::make_unique<OpenedGgufTensors>(path);
}

bool is_gguf(const std::string& path) { return path.ends_with(".gguf"); }

}  // namespace weft
