// Export to GGUF: metadata, types that fit, then the tensors in blocks.
#include "weft/pretrained/export_gguf.h"

#include <cctype>
#include <map>

#include "weft/base/machine.h"
#include "weft/base/thread_team.h"
#include "weft/formats/ggml_blocks.h"
#include "weft/formats/gguf_writer.h"
#include "weft/pretrained/assembled.h"
#include "weft/pretrained/folded_source.h"
#include "weft/pretrained/gguf_family.h"
#include "weft/pretrained/gguf_tokenizer.h"

namespace weft {
namespace {

struct Choice {
  GgmlType type;
  uint32_t file_type;  // what general.file_type calls a file that is mostly of it
  GgmlType if_uneven;  // where rows are no multiple of a block
};
constexpr Choice kChoices[] = {
    {GgmlType::f32, 0, GgmlType::f32},     {GgmlType::f16, 1, GgmlType::f16},
    {GgmlType::bf16, 32, GgmlType::bf16},  {GgmlType::q8_0, 7, GgmlType::f16},
    {GgmlType::q4_0, 2, GgmlType::f16},    {GgmlType::q4_1, 3, GgmlType::f16},
    {GgmlType::q5_0, 8, GgmlType::f16},    {GgmlType::q5_1, 9, GgmlType::f16},
    {GgmlType::q2_k, 10, GgmlType::q4_0},  {GgmlType::q3_k, 11, GgmlType::q4_0},
    {GgmlType::q4_k, 14, GgmlType::q5_0},  {GgmlType::q5_k, 16, GgmlType::q5_1},
    {GgmlType::q6_k, 18, GgmlType::q8_0},  {GgmlType::mxfp4, 38, GgmlType::f16},
    {GgmlType::iq4_nl, 25, GgmlType::f16}, {GgmlType::iq4_xs, 30, GgmlType::iq4_nl},
};
const Choice& choice_of(GgmlType type) {
  for (const Choice& c : kChoices)
    if (c.type == type) return c;
  throw Error("weft writes no {} tensors", name_of(type));
}

GgmlType fitting(GgmlType type, int64_t row) {
  while (row % info_of(type).block != 0) type = choice_of(type).if_uneven;
  return type;
}

GgmlType type_of(DType dtype) {
  return dtype == DType::bf16 ? GgmlType::bf16 : dtype == DType::f16 ? GgmlType::f16 : GgmlType::f32;
}

// What llama.cpp wants to be single.
bool stays_single(const AssembledTensor& tensor) {
  return tensor.dims.size() < 2 || tensor.parts.front().names->shape.rank() < 2 ||
         matches_pattern(tensor.name, "blk.#.ffn_gate_inp.weight") ||
         matches_pattern(tensor.name, "blk.#.ssm_conv1d*") ||
         matches_pattern(tensor.name, "blk.#.shortconv.conv.weight") || tensor.name == "position_embd.weight";
}

std::string layer_pattern_of(const std::string& name) {
  std::string pattern;
  for (const char c : name)
    if (!std::isdigit(static_cast<unsigned char>(c)))
      pattern += c;
    else if (!pattern.ends_with('#'))
      pattern += '#';
  return pattern;
}

// The types of all tensors, with a note about those that do not fit.
std::vector<GgufInfo> infos_of(const ModelSource& source, const std::vector<AssembledTensor>& tensors,
                               const std::optional<GgmlType>& wanted, std::vector<std::string>& notes) {
  std::vector<GgufInfo> infos;
  std::map<GgmlType, std::vector<std::string>> uneven;  // by what they became
  for (const AssembledTensor& t : tensors) {
    const DType stored = source.dtype_of(t.parts.front().names->param).value_or(DType::f32);
    GgmlType asked = stays_single(t) ? GgmlType::f32 : wanted.value_or(type_of(stored));
    // llama.cpp's MXFP4_MOE is a type of experts.
    if (asked == GgmlType::mxfp4 && t.dims.size() < 3) asked = GgmlType::q8_0;
    const GgmlType type = fitting(asked, t.dims.back());
    if (type != asked) {
      std::vector<std::string>& names = uneven[type];
      if (const std::string p = layer_pattern_of(t.name); std::ranges::find(names, p) == names.end())
        names.push_back(p);
    }
    infos.push_back({t.name, type, Shape(std::span<const int64_t>(t.dims))});
  }
  for (const auto& [type, names] : uneven)
    notes.push_back(fmt::format("{} instead of {}, whose blocks of {} do not fit the rows: {}", name_of(type),
                                name_of(*wanted), info_of(*wanted).block, fmt::join(names, ", ")));
  return infos;
}

// Blocks made by all cores, a part of a tensor at a time.
class BlockWriter {
 public:
  explicit BlockWriter(GgufWriter& writer) : writer_(writer) {}

  void write(GgmlType type, std::span<const float> values) {
    const uint64_t block = info_of(type).block, step = kElements / block * block;
    for (uint64_t begin = 0; begin < values.size(); begin += step)
      write_part(type, values.subspan(begin, std::min<uint64_t>(step, values.size() - begin)));
  }

 private:
  static constexpr uint64_t kElements = uint64_t(1) << 22;

  void write_part(GgmlType type, std::span<const float> values) {
    const GgmlTypeInfo& info = info_of(type);
    blocks_.resize(*ggml_bytes(type, values.size()));
    team_.parallel_for(int64_t(values.size() / info.block), 256, [&](int64_t begin, int64_t end, int) {
      const auto first = size_t(begin), count = size_t(end - begin);
      quantize(type, values.subspan(first * info.block, count * info.block),
               std::span(blocks_).subspan(first * info.bytes, count * info.bytes));
    });
    writer_.write(blocks_);
  }

  GgufWriter& writer_;
  ThreadTeam team_{usable_cores()};
  std::vector<std::byte> blocks_;
};

void write_tensors(GgufWriter& writer, const ModelSource& source, const std::vector<AssembledTensor>& tensors,
                   const std::vector<GgufInfo>& infos) {
  BlockWriter blocks(writer);
  std::vector<float> values;
  for (size_t i = 0; i < tensors.size(); ++i) {
    values.resize(size_t(tensors[i].numel()));
    read_assembled(source, tensors[i], values);
    blocks.write(infos[i].type, values);
  }
}

GgufMetadata metadata_of(const ModelSource& source, const GgufDescription& description, const EmbeddingRule& rule,
                         GgmlType type, std::vector<std::string>& notes) {
  GgufMetadata metadata;
  add_keys(metadata, description);
  std::string name = source.path();
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  metadata.set_string("general.name", name.substr(name.rfind('/') + 1));
  metadata.set<uint32_t>("general.file_type", choice_of(type).file_type);
  metadata.set<uint32_t>("general.quantization_version", 2);
  try {
    const SpecialIds ids = source.special_ids();
    add_tokenizer(metadata, *source.tokenizer(), source.config().vocab, ids.ends, notes);
    if (ids.pad) metadata.set<uint32_t>(kGgufPaddingKey, uint32_t(*ids.pad));
  } catch (const Error& e) {
    add_no_tokenizer(metadata);
    notes.push_back(fmt::format("the tokenizer was left out: {}", e.what()));
  }
  if (const auto chat = source.chat_template()) metadata.set_string(kGgufChatTemplateKey, chat->text);
  write_gguf_sampling_defaults(metadata, source.sampling_defaults());
  if (!write_gguf_embedding_rule(metadata, description.architecture, rule, usual_pooling(source.config())))
    notes.push_back(fmt::format("the file does not say all of this: {}", to_text(rule)));
  return metadata;
}

}  // namespace

GgmlType parse_ggml_type(std::string_view option, std::string_view name) {
  std::string upper;
  for (const char c : name) upper += char(std::toupper(static_cast<unsigned char>(c)));
  if (upper == "FP32" || upper == "FP16") upper.erase(1, 1);
  std::vector<std::string_view> known;
  for (const Choice& c : kChoices) {
    if (name_of(c.type) == upper) return c.type;
    known.push_back(name_of(c.type));
  }
  throw UsageError("{} {}: GGUF files are written as {}", option, name, fmt::join(known, ", "));
}

Exported export_gguf(const ModelSource& opened, const std::string& path, const GgufExportOptions& options) {
  FileSystem& fs = *options.fs;
  if (exists(fs, path)) throw UsageError("{} exists: name a new file", path);
  const std::unique_ptr<ModelSource> folded = has_factors(opened.config()) ? fold_factors(opened) : nullptr;
  const ModelSource& source = folded ? *folded : opened;
  const ModelConfig& config = source.config();
  const GgufDescription description = describe(config);
  const std::vector<ParamNames> names = names_of(gguf_family_of(description), config);
  const std::vector<AssembledTensor> tensors = assemble(names);
  Exported exported{path, description.notes};
  if (folded) exported.notes.push_back("factors of the model are part of the file's weights");
  std::vector<GgufInfo> infos = infos_of(source, tensors, options.type, exported.notes);
  const size_t num_weights = infos.size();
  for (const auto& [name, factors] : description.factors)
    infos.push_back({name + ".weight", GgmlType::f32, Shape{int64_t(factors.size())}});
  const EmbeddingRule rule = source.embedding_rule();
  const std::vector<std::string> dense_names = gguf_dense_names(description.architecture, rule.dense);
  const DenseLayers dense(std::span(rule.dense).first(dense_names.size()), config.hidden);
  for (size_t i = 0; i < dense_names.size(); ++i)
    infos.push_back({dense_names[i], GgmlType::f32, Shape{rule.dense[i].out, rule.dense[i].in}});
  const GgufMetadata metadata =
      metadata_of(source, description, rule, options.type.value_or(infos.front().type), exported.notes);
  const std::string temporary = path + ".tmp";
  make_way(fs, temporary);
  try {
    GgufWriter writer(fs, temporary, infos, metadata);
    write_tensors(writer, source, tensors, {infos.begin(), infos.begin() + std::ptrdiff_t(num_weights)});
    for (const auto& [name, factors] : description.factors) writer.write(std::as_bytes(std::span(factors)));
    for (const DenseLayers::Layer& layer : dense.all()) writer.write(std::as_bytes(std::span(layer.weight)));
    writer.finish();
    rename_path(fs, temporary, path);
  } catch (...) {
    fs.unlink(temporary);
    throw;
  }
  sync_folder(fs, parent_of(path));
  return exported;
}

}  // namespace weft
