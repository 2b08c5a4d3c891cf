// QuantizedTensors: which tensors belong together, and runs of elements across rows.
#include "weft/pretrained/quantized_tensors.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "weft/pretrained/packed_matrix.h"

namespace weft {
namespace {

constexpr std::string_view kPlainWeight = ".weight";
// Beside codes of 8 bits; those behind the zeros are of activations, which weft rounds by what they are.
constexpr std::string_view kBesideScaled[] = {".weight_scale",     ".weight_scale_inv",  ".SCB",
                                              ".weight_format",    ".weight_zero_point", ".input_scale",
                                              ".input_zero_point", ".activation_scale",  ".output_scale",
                                              ".output_zero_point"};
constexpr std::string_view kBesideGrouped[] = {".scales", ".qzeros", ".g_idx"};
constexpr std::string_view kBesideWords[] = {".weight_scale", ".weight_shape",     ".weight_zero_point",
                                             ".weight_g_idx", ".input_scale",      ".input_zero_point",
                                             ".output_scale", ".output_zero_point"};
constexpr std::string_view kBesideFloat4[] = {".weight_scale", ".weight_global_scale", ".weight_scale_2",
                                              ".input_scale",  ".input_global_scale",  ".output_scale"};
constexpr std::string_view kBesideStack[] = {kStackScales};
constexpr std::string_view kBesideTable[] = {".weight.absmax",
                                             ".weight.quant_map",
                                             ".weight.nested_absmax",
                                             ".weight.nested_quant_map",
                                             ".weight.quant_state.bitsandbytes__nf4",
                                             ".weight.quant_state.bitsandbytes__fp4"};
// Of attention, for a cache of 8 bits; weft's has scales of its own.
constexpr std::string_view kOfCaches[] = {
    ".self_attn.q_scale",      ".self_attn.k_scale",      ".self_attn.v_scale", ".self_attn.q_zero_point",
    ".self_attn.k_zero_point", ".self_attn.v_zero_point", ".k_proj.k_scale",    ".v_proj.v_scale"};

// A way in which codes lie, by the end of their tensor's name, with what lies beside them.
struct Way {
  std::string_view codes;
  std::span<const std::string_view> beside;
  std::unique_ptr<PackedMatrix> (*open)(const StoredTensors&, const std::string& base, const HfQuantization&);
  std::string_view whole = kPlainWeight;  // how the name of all of it ends
};
constexpr Way kScaledWay{kPlainWeight, kBesideScaled, scaled_matrix};
constexpr Way kWordsWay{".weight_packed", kBesideWords, words_matrix};
constexpr Way kFloat4Way{".weight_packed", kBesideFloat4, float4_matrix};
constexpr Way kPlainFloat4Way{kPlainWeight, kBesideFloat4, float4_matrix};
constexpr Way kGroupedWay{".qweight", kBesideGrouped, grouped_matrix};
constexpr Way kStackWay{kStackCodes, kBesideStack, mxfp4_stack, kStackCodes};
constexpr Way kTableWay{kPlainWeight, kBesideTable,
                        [](const StoredTensors& files, const std::string& base, const HfQuantization&) {
                          return table_matrix(files, base);
                        }};

// Null: no codes.
const Way* way_of(const StoredTensors& files, const StoredInfo& info, const HfQuantization& how) {
  using Kind = HfQuantization::Kind;
  const bool is_weight = info.name.ends_with(kPlainWeight), is_integer = info.dtype_name == "I8";
  switch (how.kind) {
    case Kind::gptq:
    case Kind::awq: return info.name.ends_with(kGroupedWay.codes) ? &kGroupedWay : nullptr;
    case Kind::mxfp4: return info.name.ends_with(kStackWay.codes) ? &kStackWay : nullptr;
    case Kind::bitsandbytes:
      if (is_weight && files.find(info.name + ".absmax")) return &kTableWay;
      return is_weight && is_integer ? &kScaledWay : nullptr;
    case Kind::scaled: break;
  }
  const bool has_pairs = how.has_float4 && info.dtype_name == "U8";
  if (info.name.ends_with(kWordsWay.codes)) return has_pairs ? &kFloat4Way : &kWordsWay;
  if (is_weight && has_pairs) return &kPlainFloat4Way;
  return is_weight && (is_integer || info.dtype_name == "F8_E4M3") ? &kScaledWay : nullptr;
}

class QuantizedTensors final : public StoredTensors {
 public:
  QuantizedTensors(std::unique_ptr<StoredTensors> files, const HfQuantization& how) : files_(std::move(files)) {
    std::unordered_set<std::string> parts;
    std::vector<StoredInfo> all;
    for (const StoredInfo& info : files_->all()) {
      const Way* const way = way_of(*files_, info, how);
      if (!way) continue;
      const std::string base = info.name.substr(0, info.name.size() - way->codes.size());
      std::unique_ptr<PackedMatrix> matrix = way->open(*files_, base, how);
      parts.insert(info.name);
      for (const std::string_view suffix : way->beside) parts.insert(base + std::string(suffix));
      const std::string name = base + std::string(way->whole);
      all.push_back({name, info.dtype_name + " codes", matrix->dims()});
      if (!matrices_.emplace(name, std::move(matrix)).second)
        throw Error("{}: tensor {} is there twice, as codes of two kinds", path(), name);
    }
    for (const StoredInfo& info : files_->all()) {
      if (parts.contains(info.name) || is_of_cache(info.name)) continue;
      if (matrices_.contains(info.name))
        throw Error("{}: tensor {} is there twice, with and without codes", path(), info.to_text());
      all.push_back(info);
    }
    set_all(std::move(all));
  }

  const std::string& path() const override { return files_->path(); }

  void read(const StoredInfo& info, int64_t first, int64_t stride, std::span<float> out) const override {
    const PackedMatrix* const matrix = matrix_of(info);
    if (!matrix) return files_->read(*files_->find(info.name), first, stride, out);
    const int64_t cols = matrix->cols();
    for (size_t done = 0; done < out.size();) {
      const int64_t at = first + int64_t(done) * stride, row = at / cols, col = at % cols;
      const size_t count = stride == 1 ? std::min(out.size() - done, size_t(cols - col)) : 1;
      matrix->read(row, col, out.subspan(done, count));
      done += count;
    }
  }

  std::optional<StoredBlocks> blocks(const StoredInfo& info) const override {
    const PackedMatrix* const matrix = matrix_of(info);
    const std::optional<BlockType> type = matrix ? matrix->block_type() : std::nullopt;
    return type ? std::optional(StoredBlocks{*type, {}}) : std::nullopt;
  }
  void copy_blocks(const StoredInfo& info, int64_t row, int64_t first, std::span<std::byte> out) const override {
    matrix_of(info)->copy_blocks(row, first, out);
  }

 private:
  static bool is_of_cache(std::string_view name) {
    return std::ranges::any_of(kOfCaches, [&](std::string_view end) { return name.ends_with(end); });
  }
  const PackedMatrix* matrix_of(const StoredInfo& info) const {
    const auto found = matrices_.find(info.name);
    return found == matrices_.end() ? nullptr : found->second.get();
  }

  std::unique_ptr<StoredTensors> files_;
  std::unordered_map<std::string, std::unique_ptr<PackedMatrix>> matrices_;
};

}  // namespace

std::unique_ptr<StoredTensors> with_whole_weights(std::unique_ptr<StoredTensors> files, const HfQuantization& how) {
  return std::make_unique<QuantizedTensors>(std::move(files), how);
}

}  // namespace weft
