// A small Llama or Mixtral in a Hugging Face folder with weights as codes, packed by the formats' published layouts,
// and the same model with the numbers that the codes stand for.
#pragma once
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "pretrained/model_on_ranks.h"
#include "weft/base/philox.h"

namespace weft {

struct RawTensor {
  std::string name, dtype;
  std::vector<int64_t> dims;
  std::vector<std::byte> bytes;
};

inline void write_raw_safetensors(const std::string& path, const std::vector<RawTensor>& tensors) {
  nlohmann::json header;
  size_t at = 0;
  for (const RawTensor& t : tensors) {
    header[t.name] = {{"dtype", t.dtype}, {"shape", t.dims}, {"data_offsets", {at, at + t.bytes.size()}}};
    at += t.bytes.size();
  }
  const std::string text = header.dump();
  const uint64_t size = text.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&size), 8);
  file << text;
  for (const RawTensor& t : tensors)
    file.write(reinterpret_cast<const char*>(t.bytes.data()), std::streamsize(t.bytes.size()));
}

template <class T>
RawTensor raw(std::string name, const char* dtype, std::vector<int64_t> dims, const std::vector<T>& values) {
  RawTensor t{std::move(name), dtype, std::move(dims), std::vector<std::byte>(values.size() * sizeof(T))};
  std::memcpy(t.bytes.data(), values.data(), t.bytes.size());
  return t;
}

// Of the model in a folder: a row of every parameter, and a block where it is held in such. False: Error was thrown.
inline bool can_be_read(const std::string& folder) {
  try {
    const auto source = open_model(folder);
    for (const ParamNames& names : source->names()) {
      std::vector<float> row(size_t(names.num_cols()));
      source->read(names.param, names.shape.numel() - names.num_cols(), row);
      const auto blocks = source->blocks_of(names.param);
      if (!blocks) continue;
      std::vector<std::byte> out(size_t(block_bytes(blocks->type)));
      blocks->tensors->copy_blocks(*blocks->stored.front().info, 0, 0, out);
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Numbers that a name and an index say.
class Draws {
 public:
  explicit Draws(std::string_view name) : key_(name_hash(name)) {}
  uint32_t operator()(int64_t i) const { return philox(key_, uint64_t(i))[0]; }

 private:
  uint64_t key_;
};

// Scales near `size` of 6 bits after the first: numbers in F16, BF16 and F32.
inline std::vector<float> draw_scales(const std::string& name, int64_t count, float size) {
  const Draws draw(name);
  std::vector<float> scales;
  for (int64_t i = 0; i < count; ++i) scales.push_back(size * (1 + float(draw(i) % 64) / 64));
  return scales;
}

// Scales in one of three dtypes.
inline RawTensor raw_scales(const std::string& name, const std::string& dtype, const std::vector<int64_t>& dims,
                            const std::vector<float>& values) {
  if (dtype == "F32") return raw(name, "F32", dims, values);
  std::vector<uint16_t> bits;
  for (const float x : values) bits.push_back(dtype == "F16" ? Float16::to_bits(x) : BFloat16(x).bits);
  return raw(name, dtype.c_str(), dims, bits);
}

// A matrix [rows, cols] in a format: its tensors, and what it stands for.
struct Packed {
  std::vector<RawTensor> tensors;
  std::vector<float> values;
};
using Pack = std::function<Packed(const std::string& base, int64_t rows, int64_t cols)>;

// Codes of 8 bits, with scales of blocks.
struct ScaledFormat {
  bool is_float = true;
  int64_t block_rows = 0, block_cols = 0;  // 0: all
  const char* scale_name = "weight_scale";
  const char* scale_dtype = "F32";
  bool has_input_scale = false;
  enum class Dims { grid, scalar, column, vector } dims = Dims::grid;

  Packed operator()(const std::string& base, int64_t rows, int64_t cols) const {
    const int64_t br = block_rows ? block_rows : rows, bc = block_cols ? block_cols : cols;
    const int64_t grid_rows = (rows + br - 1) / br, grid_cols = (cols + bc - 1) / bc;
    const std::vector<float> scales = draw_scales(base + "scale", grid_rows * grid_cols, 0x1p-11f);
    const Draws draw(base);
    Packed p;
    std::vector<uint8_t> codes;
    for (int64_t i = 0; i < rows * cols; ++i) {
      auto code = uint8_t(draw(i));
      if (is_float && (code & 0x7f) >= 0x70) code &= 0x8f;  // of usual sizes; 0x7f is no number
      codes.push_back(code);
      const int e = code >> 3 & 15, m = code & 7;
      double value = e == 0 ? std::ldexp(m, -9) : std::ldexp(8 + m, e - 10);
      if (code & 0x80) value = -value;
      if (!is_float) value = code < 128 ? code : int(code) - 256;
      p.values.push_back(float(value * double(scales[size_t(i / cols / br * grid_cols + i % cols / bc)])));
    }
    std::vector<int64_t> shape{grid_rows, grid_cols};
    if (dims == Dims::scalar) shape = {};
    if (dims == Dims::column) shape = {rows, 1};
    if (dims == Dims::vector) shape = {rows};
    p.tensors = {raw(base + ".weight", is_float ? "F8_E4M3" : "I8", {rows, cols}, codes),
                 raw_scales(fmt::format("{}.{}", base, scale_name), scale_dtype, shape, scales)};
    if (has_input_scale) p.tensors.push_back(raw(base + ".input_scale", "F32", {}, std::vector{0.5f}));
    return p;
  }
};

// Floats of 4 bits in pairs, as compressed-tensors or ModelOpt stores them.
struct Float4Format {
  bool is_modelopt = false;
  bool has_powers_of_two = false;  // MXFP4, else NVFP4
  int spread = 8;                  // of the exponents of powers of two

  Packed operator()(const std::string& base, int64_t rows, int64_t cols) const {
    static constexpr float kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const int64_t group = has_powers_of_two ? 32 : 16, groups = cols / group;
    const float of_whole = has_powers_of_two ? 1 : is_modelopt ? 0x1.8p-14f : 0x1.8p13f;
    std::vector<uint8_t> scales, codes;
    std::vector<float> sizes;
    const Draws draw(base), draw_scale(base + "scale");
    for (int64_t i = 0; i < rows * groups; ++i) {
      const uint32_t drawn = draw_scale(i);
      if (has_powers_of_two) {
        scales.push_back(uint8_t(123 - int(drawn % uint32_t(spread))));
        sizes.push_back(std::ldexp(1.0f, scales.back() - 127));
      } else {
        scales.push_back(uint8_t(0x50 + drawn % 32));
        const float its = std::ldexp(float(8 + scales.back() % 8), scales.back() / 8 - 10);
        sizes.push_back(is_modelopt ? its * of_whole : its / of_whole);
      }
    }
    Packed p;
    for (int64_t i = 0; i < rows * cols; ++i) {
      const uint32_t code = draw(i) % 16;
      if (i % 2 == 0)
        codes.push_back(uint8_t(code));
      else
        codes.back() |= uint8_t(code << 4);
      p.values.push_back(sizes[size_t(i / group)] * kMagnitudes[code % 8] * (code < 8 ? 1.0f : -1.0f));
    }
    p.tensors = {raw(base + (is_modelopt ? ".weight" : ".weight_packed"), "U8", {rows, cols / 2}, codes),
                 raw(base + ".weight_scale", has_powers_of_two ? "U8" : "F8_E4M3", {rows, groups}, scales)};
    if (has_powers_of_two) return p;
    const std::vector<int64_t> one = is_modelopt ? std::vector<int64_t>{} : std::vector<int64_t>{1};
    const std::string whole = is_modelopt ? ".weight_scale_2" : ".weight_global_scale";
    p.tensors.push_back(raw(base + whole, "F32", one, std::vector{of_whole}));
    p.tensors.push_back(
        raw(base + (is_modelopt ? ".input_scale" : ".input_global_scale"), "F32", one, std::vector{0.5f}));
    return p;
  }
};

// Codes of 4 bits, as AutoGPTQ or AutoAWQ stores them.
struct GroupedFormat {
  bool is_awq = false;
  int64_t group = 128;  // -1: all inputs
  bool zeros_less_one = true;
  bool acts_in_order = false;  // inputs belong to groups in another order
  bool has_order = false;
  const char* scale_dtype = "F16";
  bool is_gemv = false;  // of AWQ: lines are of outputs

  Packed operator()(const std::string& base, int64_t rows, int64_t cols) const {
    const int64_t size = group < 0 ? cols : group, groups = (cols + size - 1) / size;
    const Draws draw(base), draw_zero(base + "zero");
    const auto code = [&](int64_t row, int64_t col) { return draw(row * cols + col) % 16; };
    // 0 borrows from its neighbour in GPTQ's first format.
    const auto zero = [&](int64_t row, int64_t g) -> uint32_t {
      return row % 8 == 3 ? 0 : row % 8 == 4 ? 15 : 5 + draw_zero(row * groups + g) % 6;
    };
    const auto group_of = [&](int64_t col) { return acts_in_order ? (col * 7 + col / size) % groups : col / size; };
    const std::vector<float> scales = draw_scales(base + "scale", groups * rows, 0x1p-7f);
    Packed p;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t col = 0; col < cols; ++col) {
        const int64_t g = group_of(col);
        p.values.push_back(scales[size_t(g * rows + row)] * float(int(code(row, col)) - int(zero(row, g))));
      }
    if (is_gemv) {
      const int64_t words = ((groups + 7) / 8 + 3) / 4 * 4;  // padded as of groups of 32
      std::vector<uint32_t> lines(size_t(rows * cols / 8), 0), zero_lines(size_t(rows * words), 0);
      std::vector<float> wide(size_t(rows * words * 8), 0.0f);
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t col = 0; col < cols; ++col)
          lines[size_t((row * cols + col) / 8)] |= code(row, col) << col % 8 * 4;
        for (int64_t g = 0; g < groups; ++g) {
          zero_lines[size_t(row * words + g / 8)] |= zero(row, g) << g % 8 * 4;
          wide[size_t(row * words * 8 + g)] = scales[size_t(g * rows + row)];
        }
      }
      p.tensors = {raw(base + ".qweight", "I32", {rows, cols / 8}, lines),
                   raw(base + ".qzeros", "I32", {rows, words}, zero_lines),
                   raw_scales(base + ".scales", scale_dtype, {rows, words * 8}, wide)};
      return p;
    }
    constexpr int kAwqOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};  // of AutoAWQ's pack_intweight
    const auto of_outputs = [&](auto&& element, int64_t lines) {
      std::vector<uint32_t> words(size_t(lines * rows / 8), 0);
      for (int64_t line = 0; line < lines; ++line)
        for (int64_t word = 0; word < rows / 8; ++word)
          for (int i = 0; i < 8; ++i)
            words[size_t(line * (rows / 8) + word)] |= uint32_t(element(word * 8 + (is_awq ? kAwqOrder[i] : i), line))
                                                       << 4 * i;
      return words;
    };
    std::vector<uint32_t> codes;
    if (is_awq) {
      codes = of_outputs(code, cols);
    } else {
      codes.resize(size_t(cols / 8 * rows), 0);
      for (int64_t col = 0; col < cols; ++col)
        for (int64_t row = 0; row < rows; ++row) codes[size_t(col / 8 * rows + row)] |= code(row, col) << col % 8 * 4;
    }
    std::vector<uint32_t> zeros = of_outputs(zero, groups);
    if (zeros_less_one)
      for (uint32_t& word : zeros) word -= 0x11111111;
    const std::vector<int64_t> code_dims = is_awq ? std::vector{cols, rows / 8} : std::vector{cols / 8, rows};
    p.tensors = {raw(base + ".qweight", "I32", code_dims, codes),
                 raw(base + ".qzeros", "I32", {groups, rows / 8}, zeros),
                 raw_scales(base + ".scales", scale_dtype, {groups, rows}, scales)};
    if (has_order || acts_in_order) {
      std::vector<int32_t> order;
      for (int64_t col = 0; col < cols; ++col) order.push_back(int32_t(group_of(col)));
      p.tensors.push_back(raw(base + ".g_idx", "I32", {cols}, order));
    }
    return p;
  }
};

// Codes of 2 to 8 bits in planes, as GPTQModel stores them in its format gptq_p.
struct PlanarFormat {
  int bits = 7;
  int64_t group = 128;

  // Sets code `i` of a line; word: its words, by their index.
  void set(int64_t i, uint32_t code, const std::function<uint32_t&(int64_t)>& word) const {
    static const std::map<int, std::vector<int>> kPlanes = {{2, {2}},    {3, {2, 1}}, {4, {4}},      {5, {4, 1}},
                                                            {6, {4, 2}}, {8, {8}},    {7, {4, 2, 1}}};
    int64_t at = i / 32 * bits;
    for (const int width : kPlanes.at(bits)) {
      const int64_t codes_of_word = 32 / width;
      word(at + i % 32 / codes_of_word) |= (code & ((1u << width) - 1)) << i % 32 % codes_of_word * width;
      code >>= width, at += width;
    }
  }

  Packed operator()(const std::string& base, int64_t rows, int64_t cols) const {
    const int64_t groups = cols / group, words = rows * bits / 32;
    std::vector<uint32_t> codes(size_t(cols * bits / 32 * rows), 0), zeros(size_t(groups * words), 0);
    const std::vector<float> scales = draw_scales(base + "scale", groups * rows, 0x1p-9f);
    const Draws draw(base), draw_zero(base + "zero");
    const auto zero = [&](int64_t row, int64_t g) {
      return (1u << (bits - 1)) - 3 + draw_zero(row * groups + g) % 3;
    };
    Packed p;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t col = 0; col < cols; ++col) {
        const uint32_t code = draw(row * cols + col) % (1u << bits);
        set(col, code, [&](int64_t at) -> uint32_t& { return codes[size_t(at * rows + row)]; });
        const int64_t g = col / group;
        p.values.push_back(scales[size_t(g * rows + row)] * float(int(code) - int(zero(row, g))));
      }
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t row = 0; row < rows; ++row)
        set(row, zero(row, g), [&](int64_t at) -> uint32_t& { return zeros[size_t(g * words + at)]; });
    p.tensors = {raw(base + ".qweight", "I32", {cols * bits / 32, rows}, codes),
                 raw(base + ".qzeros", "I32", {groups, words}, zeros),
                 raw_scales(base + ".scales", "F16", {groups, rows}, scales)};
    return p;
  }
};

// Writes two folders: of codes, and of what they stand for.
struct PackedModel {
  static constexpr int64_t kHidden = 128, kFfn = 384, kLayers = 2, kVocab = 40;
  nlohmann::json config;
  std::vector<RawTensor> packed, plain;

  PackedModel(const nlohmann::json& quantization, const Pack& pack, int experts = 0) {
    config = {{"model_type", "llama"},       {"vocab_size", kVocab},         {"hidden_size", kHidden},
              {"intermediate_size", kFfn},   {"num_hidden_layers", kLayers}, {"num_attention_heads", 4},
              {"num_key_value_heads", 2},    {"rms_norm_eps", 1e-5},         {"max_position_embeddings", 64},
              {"tie_word_embeddings", false}};
    if (experts > 0) config.update({{"model_type", "mixtral"}, {"num_local_experts", experts}});
    const auto add_plain = [&](const std::string& name, std::vector<int64_t> dims) {
      const bool is_norm = dims.size() == 1;
      std::vector<float> values(size_t(is_norm ? dims[0] : dims[0] * dims[1]));
      for (uint64_t i = 0, key = name_hash(name); i < values.size(); ++i)
        values[i] = (is_norm ? 1.0f : 0.0f) + 0.06f * float(philox_normal(7, key, i));
      plain.push_back(raw(name, "F32", dims, values));
      packed.push_back(plain.back());
    };
    const auto add = [&](const std::string& base, int64_t rows, int64_t cols) {
      const Packed p = pack(base, rows, cols);
      plain.push_back(raw(base + ".weight", "F32", {rows, cols}, p.values));
      packed.insert(packed.end(), p.tensors.begin(), p.tensors.end());
    };
    add_plain("model.embed_tokens.weight", {kVocab, kHidden});
    for (int64_t i = 0; i < kLayers; ++i) {
      const std::string layer = fmt::format("model.layers.{}.", i);
      add_plain(layer + "input_layernorm.weight", {kHidden});
      add_plain(layer + "post_attention_layernorm.weight", {kHidden});
      add(layer + "self_attn.q_proj", kHidden, kHidden), add(layer + "self_attn.k_proj", kHidden / 2, kHidden);
      add(layer + "self_attn.v_proj", kHidden / 2, kHidden), add(layer + "self_attn.o_proj", kHidden, kHidden);
      if (experts == 0) {
        add(layer + "mlp.gate_proj", kFfn, kHidden), add(layer + "mlp.up_proj", kFfn, kHidden);
        add(layer + "mlp.down_proj", kHidden, kFfn);
        continue;
      }
      add_plain(layer + "block_sparse_moe.gate.weight", {experts, kHidden});
      for (int e = 0; e < experts; ++e) {
        const std::string expert = fmt::format("{}block_sparse_moe.experts.{}.", layer, e);
        add(expert + "w1", kFfn, kHidden), add(expert + "w3", kFfn, kHidden), add(expert + "w2", kHidden, kFfn);
      }
    }
    add_plain("model.norm.weight", {kHidden});
    add_plain("lm_head.weight", {kVocab, kHidden});
    quantization_ = quantization;
  }

  void write(const std::string& folder, bool is_packed) const {
    std::filesystem::create_directories(folder);
    nlohmann::json json = config;
    if (is_packed) json["quantization_config"] = quantization_;
    std::ofstream(folder + "/config.json") << json;
    write_raw_safetensors(folder + "/model.safetensors", is_packed ? packed : plain);
  }
  RawTensor& tensor(const std::string& name) {
    for (RawTensor& t : packed)
      if (t.name == name) return t;
    throw Error("no tensor {}", name);
  }
  nlohmann::json& quantization() { return quantization_; }

 private:
  nlohmann::json quantization_;
};

}  // namespace weft
