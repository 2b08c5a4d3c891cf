// Hugging Face's tokenizer.json: its parts, and which of its control tokens begin and end a document.
#include "weft/text/readers/hf_tokenizer.h"

#include <nlohmann/json.hpp>

#include "weft/text/limits.h"
#include "weft/text/pipeline/pipeline_tokenizer.h"
#include "weft/text/readers/added_token_json.h"
#include "weft/text/readers/hf_parts.h"
#include "weft/text/readers/word_starts.h"

namespace weft {
namespace {

std::vector<AddedToken> read_added(const hf::Part& part, const Vocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  if (part.json.is_null()) return tokens;
  for (int64_t i = 0; i < part.json.size(); ++i) {
    const hf::Part one{part.json.at(i), part.origin};
    one.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token = parse_added_token(one.json);
    if (token.content.empty()) continue;  // nothing to look for
    // The model's own id counts where it knows the token.
    if (const int32_t known = vocabulary.find(token.content); known >= 0) token.id = known;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// By its spelling where a file says it, else by where the tokenizer puts it, else because there is no other.
std::optional<int32_t> control_token(const TokenizerParts& parts, const std::string& hint,
                                     std::optional<int32_t> placed) {
  if (!hint.empty()) {
    for (const AddedToken& token : parts.added) {
      if (token.content == hint) return token.id;
    }
    const int32_t id = parts.model->vocabulary().find(hint);
    if (id < 0) throw Error("{}: the control token \"{}\" is not in the vocabulary", parts.origin, hint);
    return id;
  }
  if (placed) return placed;
  std::optional<int32_t> only;
  for (const AddedToken& token : parts.added) {
    if (!token.special) continue;
    if (only) return std::nullopt;
    only = token.id;
  }
  return only;
}

std::string to_json(std::string_view text, const HfHints& hints) {
  return to_json_text({{"type", "huggingface"},
                       {"version", 1},
                       {"begin_of_document", hints.begin_of_document},
                       {"end_of_document", hints.end_of_document},
                       {"file", std::string(text)}});
}

}  // namespace

std::unique_ptr<Tokenizer> read_hf_tokenizer(std::string_view text, std::string_view origin, const HfHints& hints) {
  const JsonDocument document =
      JsonDocument::parse(text, std::string(origin), {.max_bytes = kMostTokenizerFileBytes});
  const hf::Part file{document.root(), origin};
  file.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
             "decoder", "model"});
  if (const std::string version = file.json.string_or("version", "1.0"); version != "1.0")
    throw Error("{}: this tokenizer.json has version {}, and weft reads version 1.0", origin, version);
  const auto part = [&](std::string_view key) { return hf::Part{file.json[key], origin}; };
  TokenizerParts parts;
  parts.origin = origin;
  parts.model = hf::read_model(file.at("model"));
  parts.normalizer = hf::read_normalizer(part("normalizer"));
  parts.pre_tokenizer = with_word_starts(hf::read_pre_tokenizer(part("pre_tokenizer")), parts.normalizer.get(),
                                         *parts.model, file.json.at("model").boolean_or("ignore_merges", false));
  parts.added = read_added(part("added_tokens"), parts.model->vocabulary());
  hf::Surroundings around = hf::read_post_processor(part("post_processor"));
  const auto placed = [](const std::vector<int32_t>& ids, bool first) {
    return ids.empty() ? std::optional<int32_t>() : first ? ids.front() : ids.back();
  };
  parts.begin_of_document = control_token(parts, hints.begin_of_document, placed(around.before, true));
  parts.end_of_document = control_token(parts, hints.end_of_document, placed(around.after, false));
  parts.before = std::move(around.before);
  parts.after = std::move(around.after);
  parts.around_pair = std::move(around.pair);
  parts.decoder = hf::read_decoder(part("decoder"));
  parts.json = to_json(text, hints);
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

std::unique_ptr<Tokenizer> parse_hf_tokenizer(const JsonView& json, std::string_view origin) {
  return read_hf_tokenizer(json.at("file").string(), origin,
                           {json.at("begin_of_document").string(), json.at("end_of_document").string()});
}

std::optional<std::string> hf_tokenizer_file(const Tokenizer& tokenizer) {
  const JsonDocument document =
      JsonDocument::parse(tokenizer.to_json(), "the tokenizer", {.max_bytes = 2 * kMostTokenizerFileBytes});
  if (document.root().string_or("type", "") != "huggingface") return {};
  return document.root().at("file").string();
}

void read_hf_hints(std::string_view text, std::string_view origin, HfHints& hints) {
  const JsonDocument document = JsonDocument::parse(text, std::string(origin));
  const auto read = [&](std::string_view key, std::string& into) {
    const JsonView token = document.root()[key];
    if (!into.empty()) return;
    if (token.is_string()) into = token.string();
    if (token.is_object()) into = token.at("content").string();
  };
  read("bos_token", hints.begin_of_document);
  read("eos_token", hints.end_of_document);
}

}  // namespace weft
