// parse_tokenizer: a tokenizer from the JSON that a checkpoint or token file carries.
#include "weft/base/json.h"
#include "weft/text/byte_tokenizer.h"
#include "weft/text/char_tokenizer.h"
#include "weft/text/limits.h"
#include "weft/text/readers/hf_tokenizer.h"
#include "weft/text/readers/sentencepiece.h"
#include "weft/text/readers/tiktoken.h"
#include "weft/text/tokenizer.h"

namespace weft {
namespace {

std::unique_ptr<Tokenizer> parse_char(const JsonView& json, std::string_view origin) {
  const JsonView list = json.at("code_points");
  std::vector<char32_t> code_points;
  for (int64_t i = 0; i < list.size(); ++i) code_points.push_back(char32_t(list.at(i).integer(0, 0x10FFFF)));
  const bool is_ascending =
      std::adjacent_find(code_points.begin(), code_points.end(), std::greater_equal<>()) == code_points.end();
  if (code_points.empty() || !is_ascending)
    throw Error(
        "{}: the code points of the char tokenizer are missing or not in ascending order; take this "
        "tokenizer from the checkpoint or token file that wrote it again",
        origin);
  return std::make_unique<CharTokenizer>(std::move(code_points), json.at("end_of_document").boolean());
}

std::unique_ptr<Tokenizer> parse_byte(const JsonView&, std::string_view) { return std::make_unique<ByteTokenizer>(); }

}  // namespace

std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view text, std::string_view origin) {
  const JsonDocument document =
      JsonDocument::parse(text, std::string(origin), {.max_bytes = 2 * kMostTokenizerFileBytes});
  const JsonView json = document.root();
  if (json.is_object() && json.has("model")) return read_hf_tokenizer(text, origin);
  const std::string type = json.is_object() && json["type"].is_string() ? json["type"].string() : "";
  using Parse = std::unique_ptr<Tokenizer> (*)(const JsonView&, std::string_view);
  static constexpr std::pair<std::string_view, Parse> kTypes[] = {{"byte", parse_byte},
                                                                  {"char", parse_char},
                                                                  {"huggingface", parse_hf_tokenizer},
                                                                  {"sentencepiece", parse_sentencepiece_tokenizer},
                                                                  {"tiktoken", parse_tiktoken_tokenizer}};
  for (const auto& [name, parse] : kTypes) {
    if (name != type) continue;
    if (json.at("version").integer() != 1)
      throw Error("{}: this tokenizer has version {}, and this program reads version 1; use a newer weft", origin,
                  json["version"].integer());
    return parse(json, origin);
  }
  throw Error(
      "{}: this is neither a Hugging Face tokenizer.json (it has no \"model\") nor a tokenizer that weft wrote: its "
      "\"type\" is \"{}\"",
      origin, type);
}

}  // namespace weft
