// TextEncoderSource: config.json and the files of sentence-transformers, or the metadata of a GGUF file.
#include "weft/pretrained/encoders/text_encoder_source.h"

#include <algorithm>

#include "weft/base/file.h"
#include "weft/pretrained/encoders/bert_files.h"
#include "weft/pretrained/gguf_model.h"
#include "weft/pretrained/gguf_tokenizer.h"
#include "weft/text/tokenizer_files.h"

namespace weft {
namespace {

constexpr const char* kTokenizerConfig = "tokenizer_config.json";

// Of a folder; an empty object where there is none.
JsonDocument read_if_there(const std::string& folder, const char* name) {
  constexpr uint64_t kMostBytes = uint64_t(4) << 20;
  const std::string file = join_path(folder, name);
  return JsonDocument::parse(exists(FileSystem::real(), file) ? read_file(file, kMostBytes) : "{}", file);
}

// The number of a file, if there is one. A tokenizer that knows no limit writes 10^30.
int64_t limit_in(const std::string& folder, const char* file, const char* key, int64_t otherwise) {
  const JsonDocument json = read_if_there(folder, file);
  const double number = json.root().number_or(key, double(otherwise));
  if (!(number >= 1)) throw Error("{}: {} is {}, and no text is so short", json.root().source(), key, number);
  return number < double(otherwise) ? int64_t(number) : otherwise;
}

int64_t longest_text(const std::string& folder, int64_t context) {
  return std::min(limit_in(folder, "sentence_bert_config.json", "max_seq_length", context),
                  limit_in(folder, kTokenizerConfig, "model_max_length", context));
}

// That matrices are stored in; f32 of wider ones, and of blocks.
DType dtype_of(const StoredTensors& stored) {
  DType found = DType::f32;
  for (const StoredInfo& info : stored.all())
    if (info.dims.size() == 2 && (info.dtype == DType::bf16 || info.dtype == DType::f16)) found = *info.dtype;
  return found;
}

}  // namespace

TextEncoderSource::TextEncoderSource(const std::string& path) : path_(path) {
  const BertFiles files = open_bert_files(path);
  config_ = files.config, dtype_ = dtype_of(*files.stored);
  if (is_gguf(path))
    read_gguf();
  else
    read_folder();
}

// Where no file says otherwise, sentence-transformers takes the mean.
void TextEncoderSource::read_folder() {
  embedding_ = read_embedding_rule(path_, Pooling::mean);
  context_ = longest_text(path_, config_.context());
  if (config_.labels > 0) scores_ = read_score_rule(path_);
}

void TextEncoderSource::read_gguf() {
  const GgufFile file(path_);
  const std::string architecture(file.at("general.architecture").string());
  embedding_ = read_gguf_embedding_rule(file, Pooling::mean);
  context_ = std::min(config_.context(), file.at(architecture + ".context_length").integer(1));
  if (config_.labels == 0) return;
  scores_ = default_score_rule(config_.labels);
  const std::string names = architecture + ".classifier.output_labels";
  if (!file.has(names)) return;
  const std::vector<std::string_view> told = file.at(names).strings();
  if (told.size() != scores_.labels.size())
    throw Error("{}: key '{}' has {} labels, and the model {}", path_, names, told.size(), scores_.labels.size());
  scores_.labels.assign(told.begin(), told.end());
}

std::optional<PairSurroundings> TextEncoderSource::around_pair(const Tokenizer& tokenizer) const {
  return is_gguf(path_) ? around_pair_of_gguf(tokenizer) : around_pair_of_folder(tokenizer);
}

std::optional<PairSurroundings> TextEncoderSource::around_pair_of_folder(const Tokenizer& tokenizer) const {
  std::optional<PairSurroundings> around = tokenizer.around_pair();
  if (!around) return {};
  const JsonDocument config = read_if_there(path_, kTokenizerConfig);
  const JsonView inputs = config.root()["model_input_names"];
  bool gives_kinds = !inputs.is_array();
  for (int64_t i = 0; !gives_kinds && i < inputs.size(); ++i) gives_kinds = inputs.at(i).string() == "token_type_ids";
  around->tells_apart = around->tells_apart && gives_kinds && config_.kinds > 1;
  return around;
}

// BERT's tokens stand between both texts once; of others what is behind the first also stands before the second.
std::optional<PairSurroundings> TextEncoderSource::around_pair_of_gguf(const Tokenizer& tokenizer) const {
  const std::span<const int32_t> before = tokenizer.before_text(), after = tokenizer.after_text();
  if (before.empty() || after.empty()) return {};
  const bool is_bert = tokenizer.name() == "wordpiece";
  PairSurroundings around{.before = {before.begin(), before.end()},
                          .between = {after.begin(), after.end()},
                          .after = {after.begin(), after.end()},
                          .tells_apart = is_bert && config_.kinds > 1};
  if (!is_bert) around.between.insert(around.between.end(), after.begin(), after.end());
  return around;
}

std::unique_ptr<Tokenizer> TextEncoderSource::tokenizer() const {
  return is_gguf(path_) ? open_gguf_tokenizer(path_) : open_tokenizer(FileSystem::real(), path_);
}

}  // namespace weft
