// QuantizedTensors: which tensors belong together, and runs of elements across rows.
#include "weft/pretrained/quantized_tensors.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "weft/pretrained/packed_matrix.h"

namespace weft {
namespace {

constexpr std::string_view kPlainWeight = ".weight", kCodes = ".qweight";
// Beside codes of 8 bits; the last three are of activations, which weft rounds by what they are.
constexpr std::string_view kBesideScaled[] = {".weight_scale", ".weight_scale_inv", ".input_scale",
                                              ".activation_scale", ".output_scale"};
constexpr std::string_view kBesideGrouped[] = {".scales", ".qzeros", ".g_idx"};

class QuantizedTensors final : public StoredTensors {
 public:
  QuantizedTensors(std::unique_ptr<StoredTensors> files, const HfQuantization& how) : files_(std::move(files)) {
    const bool is_scaled = how.kind == HfQuantization::Kind::scaled;
    std::unordered_set<std::string> parts;
    std::vector<StoredInfo> all;
    for (const StoredInfo& info : files_->all()) {
      const bool is_codes =
          is_scaled ? info.name.ends_with(kPlainWeight) && (info.dtype_name == "F8_E4M3" || info.dtype_name == "I8")
                    : info.name.ends_with(kCodes);
      if (!is_codes) continue;
      const std::string base = info.name.substr(0, info.name.rfind('.'));
      std::unique_ptr<PackedMatrix> matrix =
          is_scaled ? scaled_matrix(*files_, base, how) : grouped_matrix(*files_, base, how);
      parts.insert(info.name);
      for (const std::string_view suffix : is_scaled ? std::span<const std::string_view>(kBesideScaled)
                                                     : std::span<const std::string_view>(kBesideGrouped))
        parts.insert(base + std::string(suffix));
      const std::string name = base + std::string(kPlainWeight);
      all.push_back({name,
                     is_scaled ? info.dtype_name + " with scales" : "of 4 bits in groups",
                     {matrix->rows(), matrix->cols()}});
      matrices_.emplace(name, std::move(matrix));
    }
    for (const StoredInfo& info : files_->all()) {
      if (parts.contains(info.name)) continue;
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
