// TextEncoderSource: config.json, and the files of sentence-transformers.
#include "weft/pretrained/encoders/text_encoder_source.h"

#include <algorithm>

#include "weft/base/file.h"
#include "weft/pretrained/hf_family.h"
#include "weft/pretrained/stored_tensors.h"
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

}  // namespace

// Where no file says otherwise, sentence-transformers takes the mean.
TextEncoderSource::TextEncoderSource(const std::string& folder)
    : folder_(folder), embedding_(read_embedding_rule(folder, Pooling::mean)) {
  const JsonDocument json = read_config_json(folder);
  config_ = read_bert_config(json.root());
  context_ = longest_text(folder, config_.context());
  if (config_.labels > 0) scores_ = read_score_rule(folder);
}

DType TextEncoderSource::dtype() const {
  const auto stored = open_weights(folder_);
  DType found = DType::f32;
  for (const StoredInfo& info : stored->all())
    if (info.dims.size() == 2 && (info.dtype == DType::bf16 || info.dtype == DType::f16)) found = *info.dtype;
  return found;
}

std::optional<PairSurroundings> TextEncoderSource::around_pair(const Tokenizer& tokenizer) const {
  std::optional<PairSurroundings> around = tokenizer.around_pair();
  if (!around) return {};
  const JsonDocument config = read_if_there(folder_, kTokenizerConfig);
  const JsonView inputs = config.root()["model_input_names"];
  bool gives_kinds = !inputs.is_array();
  for (int64_t i = 0; !gives_kinds && i < inputs.size(); ++i) gives_kinds = inputs.at(i).string() == "token_type_ids";
  around->tells_apart = around->tells_apart && gives_kinds && config_.kinds > 1;
  return around;
}

std::unique_ptr<Tokenizer> TextEncoderSource::tokenizer() const {
  return open_tokenizer(FileSystem::real(), folder_);
}

}  // namespace weft
