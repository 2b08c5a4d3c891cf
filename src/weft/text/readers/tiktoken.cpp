// tiktoken: ranks are ids, and merges follow from them.
#include "weft/text/readers/tiktoken.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "weft/text/base64.h"
#include "weft/text/limits.h"
#include "weft/text/pipeline/byte_alphabet.h"
#include "weft/text/pipeline/known_patterns.h"
#include "weft/text/pipeline/pipeline_tokenizer.h"
#include "weft/text/pipeline/spelled_bpe.h"

namespace weft {
namespace {

TiktokenScheme openai(std::string_view name, std::string_view pattern,
                      std::vector<std::pair<std::string, int32_t>> control) {
  return {.name = std::string(name),
          .pattern = std::string(pattern),
          .control = std::move(control),
          .end = "<|endoftext|>"};
}

TiktokenScheme llama3(int32_t first) {
  TiktokenScheme scheme{.name = "llama3",
                        .pattern = std::string(kCl100kPattern),
                        .begin = "<|begin_of_text|>",
                        .end = "<|end_of_text|>",
                        .add_begin = true};
  const std::string_view named[] = {"<|begin_of_text|>",
                                    "<|end_of_text|>",
                                    "<|reserved_special_token_0|>",
                                    "<|reserved_special_token_1|>",
                                    "<|finetune_right_pad_id|>",
                                    "<|step_id|>",
                                    "<|start_header_id|>",
                                    "<|end_header_id|>",
                                    "<|eom_id|>",
                                    "<|eot_id|>",
                                    "<|python_tag|>"};
  for (const std::string_view token : named)
    scheme.control.emplace_back(token, first + int32_t(scheme.control.size()));
  for (int32_t i = 2; scheme.control.size() < 256; ++i)
    scheme.control.emplace_back(fmt::format("<|reserved_special_token_{}|>", i),
                                first + int32_t(scheme.control.size()));
  return scheme;
}

TiktokenScheme qwen(int32_t first) {
  TiktokenScheme scheme{.name = "qwen", .pattern = std::string(kCl100kDigitPattern), .end = "<|endoftext|>"};
  for (const std::string_view token : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
    scheme.control.emplace_back(token, first + int32_t(scheme.control.size()));
  for (int32_t i = 0; i < 205; ++i)
    scheme.control.emplace_back(fmt::format("<|extra_{}|>", i), first + int32_t(scheme.control.size()));
  return scheme;
}

struct Token {
  std::string bytes;
  int32_t rank;
};

// Calls visit(line number, line) for every line that is not empty.
template <class Visit>
void for_each_line(std::string_view text, Visit visit) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) visit(number, line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

Token parse_line(std::string_view line, int64_t number, std::string_view origin) {
  const size_t space = line.find(' ');
  Token token{};
  bool is_token = space != line.npos;
  if (is_token) {
    const std::string_view rank = line.substr(space + 1);
    const auto [end, error] = std::from_chars(rank.data(), rank.data() + rank.size(), token.rank);
    std::optional<std::string> bytes = bytes_of_base64(line.substr(0, space));
    is_token = error == std::errc() && end == rank.data() + rank.size() && bytes && !bytes->empty();
    if (is_token) token.bytes = std::move(*bytes);
  }
  if (!is_token)
    throw Error("{}, line {}: \"{}\" is not a token in base64 and its rank", origin, number, line.substr(0, 80));
  return token;
}

}  // namespace

std::optional<TiktokenScheme> tiktoken_scheme(std::string_view name, int32_t num_tokens) {
  if (name == "r50k_base" || name == "gpt2") return openai(name, kGpt2Pattern, {{"<|endoftext|>", 50256}});
  if (name == "p50k_base") return openai(name, kGpt2Pattern, {{"<|endoftext|>", 50256}});
  if (name == "cl100k_base")
    return openai(name, kCl100kPattern,
                  {{"<|endoftext|>", 100257},
                   {"<|fim_prefix|>", 100258},
                   {"<|fim_middle|>", 100259},
                   {"<|fim_suffix|>", 100260},
                   {"<|endofprompt|>", 100276}});
  if (name == "o200k_base")
    return openai(name, kO200kPattern, {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}});
  if (name == "llama3") return llama3(num_tokens);
  if (name == "qwen") return qwen(num_tokens);
  return std::nullopt;
}

std::string tiktoken_scheme_names() { return "gpt2, r50k_base, p50k_base, cl100k_base, o200k_base, llama3, qwen"; }

int32_t count_tiktoken_lines(std::string_view text) {
  int32_t count = 0;
  for_each_line(text, [&](int64_t, std::string_view) { ++count; });
  return count;
}

std::unique_ptr<Tokenizer> read_tiktoken(std::string_view text, const TiktokenScheme& scheme,
                                         std::string_view origin) {
  const ByteAlphabet& alphabet = ByteAlphabet::get();
  Vocabulary vocabulary(origin);
  for_each_line(text, [&](int64_t number, std::string_view line) {
    const Token token = parse_line(line, number, origin);
    const std::string spelling = alphabet.spell(token.bytes);
    if (vocabulary.find(spelling) >= 0) throw Error("{}, line {}: this token appears twice", origin, number);
    vocabulary.add(spelling, token.rank);
  });
  for (int byte = 0; byte < 256; ++byte) {
    if (vocabulary.find(alphabet.spell(std::string(1, char(uint8_t(byte))))) < 0)
      throw Error("{}: the byte 0x{:02X} has no token; this is not a whole tiktoken file", origin, byte);
  }
  std::vector<uint32_t> ranks(size_t(vocabulary.size()), SpelledBpe::kNoMerge);
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.has(id)) ranks[size_t(id)] = uint32_t(id);
  }
  TokenizerParts parts;
  parts.origin = origin;
  for (const auto& [content, id] : scheme.control) {
    if (vocabulary.has(id))
      throw Error("{}: token {} is \"{}\", where the scheme {} has \"{}\"", origin, id, vocabulary.spelling(id),
                  scheme.name, content);
    parts.added.push_back({.content = content, .id = id, .special = true});
    if (content == scheme.begin) parts.begin_of_document = id;
    if (content == scheme.end) parts.end_of_document = id;
  }
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  steps.push_back(split_pre_tokenizer(Regex(scheme.pattern, origin), SplitBehavior::isolated, false));
  steps.push_back(byte_level_pre_tokenizer(false, false));
  parts.pre_tokenizer = sequence_pre_tokenizer(std::move(steps));
  parts.model =
      std::make_unique<SpelledBpe>(std::move(vocabulary), std::move(ranks), SpelledBpeOptions{.ignore_merges = true});
  if (scheme.add_begin) parts.before = {*parts.begin_of_document};
  parts.decoder.push_back(byte_level_decoder());
  nlohmann::json control = nlohmann::json::array();
  for (const auto& [content, id] : scheme.control) control.push_back({content, id});
  parts.json = to_json_text({{"type", "tiktoken"},
                             {"version", 1},
                             {"name", scheme.name},
                             {"pattern", scheme.pattern},
                             {"control", std::move(control)},
                             {"begin", scheme.begin},
                             {"end", scheme.end},
                             {"add_begin", scheme.add_begin},
                             {"file", std::string(text)}});
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

std::unique_ptr<Tokenizer> parse_tiktoken_tokenizer(const JsonView& json, std::string_view origin) {
  TiktokenScheme scheme{.name = json.at("name").string(),
                        .pattern = json.at("pattern").string(),
                        .begin = json.at("begin").string(),
                        .end = json.at("end").string(),
                        .add_begin = json.at("add_begin").boolean()};
  const JsonView control = json.at("control");
  bool has_begin = false;
  for (int64_t i = 0; i < control.size(); ++i) {
    const JsonView token = control.at(i);
    scheme.control.emplace_back(token.at(0).string(), int32_t(token.at(1).integer(0, kMostTokens - 1)));
    has_begin |= scheme.control.back().first == scheme.begin;
  }
  if (scheme.add_begin && !has_begin)
    throw Error("{}: the beginning \"{}\" is not among the control tokens", origin, scheme.begin);
  return read_tiktoken(json.at("file").string(), scheme, origin);
}

}  // namespace weft
