// Opening tokenizers: which file there is, and which format it has.
#include "weft/text/tokenizer_files.h"

#include <charconv>

#include "weft/base/json.h"
#include "weft/text/limits.h"
#include "weft/text/readers/added_token_json.h"
#include "weft/text/readers/gpt2_files.h"
#include "weft/text/readers/sentencepiece.h"
#include "weft/text/readers/tiktoken.h"

namespace weft {
namespace {

constexpr std::string_view kConfig = "tokenizer_config.json";
constexpr std::string_view kSpecial = "special_tokens_map.json";
// What a folder may hold, the most telling first.
constexpr std::string_view kNames[] = {"tokenizer.json", "tokenizer.weft.json", "tokenizer.model",
                                       "spiece.model",   "encoder.json",        "vocab.json"};

class Opener {
 public:
  Opener(FileSystem& fs, std::string path) : fs_(fs), path_(std::move(path)), folder_(parent_of(path_)) {}

  std::unique_ptr<Tokenizer> open() {
    const std::string name = file_name_of(path_);
    if (name == "encoder.json" || name == "vocab.bpe") return open_gpt2("encoder.json", "vocab.bpe");
    if (name == "vocab.json" || name == "merges.txt") return open_gpt2("vocab.json", "merges.txt");
    const std::string text = read_file(path_, 2 * kMostTokenizerFileBytes, fs_);
    if (name.ends_with(".tiktoken")) return open_tiktoken(text, name.substr(0, name.size() - 9));
    const size_t first = text.find_first_not_of(" \t\r\n");
    if (first != std::string::npos && text[first] == '{') return open_json(text);
    return open_sentencepiece(text);
  }

 private:
  std::string beside(std::string_view name) const { return join_path(folder_, name); }

  HfHints hints() const {
    HfHints hints;
    for (const std::string_view name : {kConfig, kSpecial}) {
      if (exists(fs_, beside(name)))
        read_hf_hints(read_file(beside(name), kMostTokenizerFileBytes, fs_), beside(name), hints);
    }
    return hints;
  }

  std::unique_ptr<Tokenizer> open_json(const std::string& text) const {
    const bool is_hf = file_name_of(path_) == "tokenizer.json";
    return is_hf ? read_hf_tokenizer(text, path_, hints()) : parse_tokenizer(text, path_);
  }

  std::unique_ptr<Tokenizer> open_gpt2(std::string_view vocabulary, std::string_view merges) const {
    for (const std::string_view name : {vocabulary, merges}) {
      if (!exists(fs_, beside(name)))
        throw UsageError("{} needs {} beside it, which does not exist", path_, beside(name));
    }
    // Newer models share these names, and cut text in other ways.
    if (vocabulary == "vocab.json") {
      const std::string kind = exists(fs_, beside(kConfig))
                                   ? JsonDocument::load(beside(kConfig)).root().string_or("tokenizer_class", "")
                                   : "";
      if (!kind.starts_with("GPT2Tokenizer"))
        throw UsageError(
            "{}: {} and {} do not say how text is cut, and {} does not say that it is as GPT-2 does; use the model's "
            "tokenizer.json",
            folder_, vocabulary, merges, kConfig);
    }
    return read_gpt2_files(read_file(beside(vocabulary), kMostTokenizerFileBytes, fs_),
                           read_file(beside(merges), kMostTokenizerFileBytes, fs_), beside(vocabulary), hints());
  }

  std::unique_ptr<Tokenizer> open_tiktoken(const std::string& text, std::string_view name) const {
    const std::optional<TiktokenScheme> scheme = tiktoken_scheme(name, count_tiktoken_lines(text));
    if (!scheme)
      throw UsageError("{}: a tiktoken file is known by its name, and weft knows {}; rename it to the one it is",
                       path_, tiktoken_scheme_names());
    return read_tiktoken(text, *scheme, path_);
  }

  std::unique_ptr<Tokenizer> open_sentencepiece(const std::string& bytes) const {
    const SentencePieceModel model = parse_sentencepiece_model(bytes, path_);
    SentencePieceUse use = usual_use(model);
    if (exists(fs_, beside(kConfig))) {
      const JsonDocument config = JsonDocument::load(beside(kConfig));
      use.add_begin = config.root().boolean_or("add_bos_token", use.add_begin);
      use.add_end = config.root().boolean_or("add_eos_token", use.add_end);
      const JsonView added = config.root()["added_tokens_decoder"];
      if (added.is_object()) {
        for (const std::string& id : added.keys()) add(added.at(id), id, model, use);
      }
    }
    return make_sentencepiece_tokenizer(model, use, path_);
  }

  void add(const JsonView& json, const std::string& id, const SentencePieceModel& model,
           SentencePieceUse& use) const {
    int32_t number = 0;
    const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), number);
    if (error != std::errc() || end != id.data() + id.size() || number < 0 || number >= kMostTokens)
      throw Error("{}: {} is not the id of a token", beside(kConfig), id);
    if (size_t(number) < model.pieces.size()) return;
    use.added.push_back(parse_added_token(json, number));
    use.added.back().normalized = false;  // they are looked for in the text as it is
  }

  FileSystem& fs_;
  std::string path_, folder_;
};

bool is_folder(FileSystem& fs, const std::string& path) {
  const int fd = fs.open(path, OpenMode::folder);
  if (fd < 0) return false;
  fs.close(fd);
  return true;
}

// The file of a folder that holds its tokenizer; empty when there is none.
std::string find_in(FileSystem& fs, const std::string& folder) {
  for (const std::string_view name : kNames) {
    if (exists(fs, join_path(folder, name))) return join_path(folder, name);
  }
  for (const std::string& name : list_folder(fs, folder)) {
    if (name.ends_with(".tiktoken")) return join_path(folder, name);
  }
  return "";
}

}  // namespace

bool holds_tokenizer(FileSystem& fs, const std::string& folder) {
  return is_folder(fs, folder) && !find_in(fs, folder).empty();
}

std::unique_ptr<Tokenizer> open_tokenizer(FileSystem& fs, const std::string& path) {
  if (!is_folder(fs, path)) return Opener(fs, path).open();
  const std::string file = find_in(fs, path);
  if (file.empty())
    throw UsageError(
        "{} holds no tokenizer: tokenizer.json, tokenizer.model, encoder.json with vocab.bpe or a tiktoken "
        "file were looked for",
        path);
  return Opener(fs, file).open();
}

}  // namespace weft
