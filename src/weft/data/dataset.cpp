// Dataset: reading text in pieces, and the cache of token files.
#include "weft/data/dataset.h"

#include <algorithm>
#include <cmath>

#include "weft/base/checksum.h"
#include "weft/data/instruct_tokens.h"
#include "weft/data/pair_tokens.h"
#include "weft/data/text_pieces.h"
#include "weft/data/token_file_writer.h"
#include "weft/text/byte_tokenizer.h"
#include "weft/text/char_tokenizer.h"
#include "weft/text/tokenizer_files.h"
#include "weft/text/utf8.h"

namespace weft {
namespace {

// The tokenizer of a text whose vocabulary is what the text holds.
std::unique_ptr<Tokenizer> find_characters(FileSystem& fs, const TextFiles& sources, std::string_view key,
                                           TextMeter& meter) {
  CodePointSet characters;
  int documents = 0;
  for (const TextFile& source : sources.files)
    documents += read_text_pieces(
        fs, source, meter, [](std::string_view text) { return whole_utf8_prefix(text); },
        [&](std::string_view text) { characters.add(text); });
  std::vector<char32_t> sorted = characters.sorted();
  if (sorted.empty()) throw UsageError("{}: its {} files hold no text", key, sources.files.size());
  return std::make_unique<CharTokenizer>(std::move(sorted), documents > 1);
}

void build(FileSystem& fs, const TextFiles& sources, const Tokenizer& tokenizer, const std::string& path,
           std::string_view key, TextMeter& meter) {
  TokenFileWriter writer(fs, path, tokenizer);
  std::vector<int32_t> ids;
  int64_t skipped = 0, bytes = 0;
  for (const TextFile& source : sources.files) {
    writer.begin_document();
    bool continues = false;
    const bool is_text = read_text_pieces(
        fs, source, meter, [&](std::string_view text) { return tokenizer.cut(text); },
        [&](std::string_view text) {
          ids.clear();
          tokenizer.encode(text, {.continues = continues}, ids);
          continues = true;
          writer.append(ids);
        });
    is_text ? bytes += int64_t(source.bytes) : ++skipped;
  }
  if (writer.num_tokens() == 0)
    throw UsageError("{}: its {} files hold no text ({} are binary)", key, sources.files.size(), skipped);
  writer.finish(bytes, skipped);
}

// A token file's name in the cache: what it was built from, and by what.
std::string cached_name(const TextFiles& sources, std::string_view tokenizer) {
  Digester digester;
  const auto add = [&](std::string_view text) { digester.update(bytes_of(text)); };
  add(fmt::format("weft.tok 1\n{}\n", tokenizer));
  for (const TextFile& file : sources.files)
    add(fmt::format("{} {} {} {}\n", file.path.size(), file.path, file.bytes, file.modified_ns));
  return digester.finish().to_hex() + ".tok";
}

bool is_token_file(const std::string& where) { return where.ends_with(".tok"); }

std::shared_ptr<const Tokenizer> load_tokenizer(FileSystem& fs, const std::string& which) {
  if (which == "byte") return std::make_shared<ByteTokenizer>();
  if (!exists(fs, which))
    throw UsageError(
        "data.tokenizer = \"{}\": there is no such file; write \"byte\", \"char\" or the path of a tokenizer's "
        "file or folder",
        which);
  return open_tokenizer(fs, which);
}

bool holds_examples(const std::string& where, const DatasetOptions& options) {
  if (options.kind != ExampleKind::answers) return true;
  const std::string& format = options.format;
  if (format == "auto") return where.ends_with(".jsonl") || where.ends_with(".json");
  return format != "text";
}

InstructFormat format_of(const std::string& name) {
  return name == "chat"         ? InstructFormat::chat
         : name == "alpaca"     ? InstructFormat::alpaca
         : name == "completion" ? InstructFormat::completion
                                : InstructFormat::automatic;
}

// Examples as tokens, from the cache or built into it.
std::shared_ptr<const TokenFile> open_examples(FileSystem& fs, const std::string& where, const Tokenizer& tokenizer,
                                               const DatasetOptions& options, std::string_view key,
                                               TextProgress progress) {
  const TextFiles sources = find_text_files(where, key);
  // The number counts the ways in which write_example has made tokens.
  const std::string how = fmt::format("examples 3 {} {}\n{}\n{}\n{}", int(options.kind),
                                      options.kind == ExampleKind::classes ? options.labels : 0, options.format,
                                      options.chat_template, tokenizer.to_json());
  const std::string path = join_path(options.cache_dir, cached_name(sources, how));
  if (!exists(fs, path)) {
    make_folders(fs, options.cache_dir);
    const ChatFormat chat(options.chat_template, options.chat_source, tokenizer);
    TextMeter meter{progress, sources.total_bytes};
    TokenFileWriter writer(fs, path, tokenizer, true);
    const auto count = [&](int64_t bytes) { meter.add(uint64_t(bytes)); };
    switch (options.kind) {
      case ExampleKind::answers:
        write_examples(fs, sources, format_of(options.format), chat, tokenizer, writer, count);
        break;
      case ExampleKind::pairs: write_pairs(fs, sources, chat, tokenizer, PairTargets::answers, writer, count); break;
      case ExampleKind::scored_pairs:
        write_pairs(fs, sources, chat, tokenizer, PairTargets::scores, writer, count);
        break;
      case ExampleKind::labelled: write_labelled(fs, sources, chat, tokenizer, writer, count); break;
      case ExampleKind::classes: write_classes(fs, sources, chat, tokenizer, options.labels, writer, count); break;
      case ExampleKind::prompts: break;  // which are no tokens
    }
    if (writer.num_tokens() == 0) throw UsageError("{} = \"{}\" holds no example", key, where);
    writer.finish(sources.total_bytes, 0);
  }
  return std::make_shared<const TokenFile>(path, fs);
}

struct TrainTokens {
  std::shared_ptr<const TokenFile> file;
  std::shared_ptr<const Tokenizer> tokenizer;
};

// A token file carries its tokenizer.
TrainTokens open_token_file(FileSystem& fs, const std::string& path) {
  auto file = std::make_shared<const TokenFile>(path, fs);
  std::shared_ptr<const Tokenizer> tokenizer = parse_tokenizer(file->tokenizer_json(), path);
  return {std::move(file), std::move(tokenizer)};
}

TrainTokens open_train(FileSystem& fs, const DatasetOptions& options, TextProgress progress) {
  constexpr std::string_view key = "data.train";
  if (is_token_file(options.train)) return open_token_file(fs, options.train);
  if (options.opened || options.tokenizer != "char") {
    const std::shared_ptr<const Tokenizer> tokenizer =
        options.opened ? options.opened : load_tokenizer(fs, options.tokenizer);
    if (holds_examples(options.train, options))
      return {open_examples(fs, options.train, *tokenizer, options, key, progress), tokenizer};
    return {open_tokens(fs, options.train, *tokenizer, options.cache_dir, key, progress), tokenizer};
  }
  if (holds_examples(options.train, options))
    throw UsageError("data.tokenizer = \"char\": examples need a tokenizer of their own; write \"byte\" or name one");
  const TextFiles sources = find_text_files(options.train, key);
  const std::string path = join_path(options.cache_dir, cached_name(sources, "char"));
  if (!exists(fs, path)) {
    make_folders(fs, options.cache_dir);
    TextMeter meter{progress, 2 * sources.total_bytes};
    build(fs, sources, *find_characters(fs, sources, key, meter), path, key, meter);
  }
  return open_token_file(fs, path);
}

Dataset open_prompts(FileSystem& fs, const DatasetOptions& options, TextProgress progress) {
  if (!options.opened && options.tokenizer == "char")
    throw UsageError("data.tokenizer = \"char\": prompts need a tokenizer of their own; write \"byte\" or name one");
  Dataset dataset;
  dataset.tokenizer = options.opened ? options.opened : load_tokenizer(fs, options.tokenizer);
  const ChatFormat chat(options.chat_template, options.chat_source, *dataset.tokenizer);
  const auto read = [&](const std::string& where, std::string_view key) {
    const TextFiles sources = find_text_files(where, key);
    TextMeter meter{progress, sources.total_bytes};
    return read_prompts(fs, sources, chat, *dataset.tokenizer, key,
                        [&](int64_t bytes) { meter.add(uint64_t(bytes)); });
  };
  dataset.prompts = read(options.train, "data.train");
  if (!options.valid.empty()) dataset.valid_prompts = read(options.valid, "data.valid");
  return dataset;
}

// Examples are not cut in two.
int64_t split_at(const TokenFile& file, int64_t token) {
  if (!file.has_examples()) return token;
  const std::span<const uint64_t> starts = file.document_starts();
  const auto next = std::lower_bound(starts.begin(), starts.end(), uint64_t(token));
  return next == starts.end() ? file.num_tokens() : int64_t(*next);
}

}  // namespace

std::shared_ptr<const TokenFile> open_tokens(FileSystem& fs, const std::string& where, const Tokenizer& tokenizer,
                                             const std::string& cache_dir, std::string_view key,
                                             TextProgress progress) {
  if (is_token_file(where)) {
    auto file = std::make_shared<const TokenFile>(where, fs);
    if (file->tokenizer_fingerprint() != tokenizer.fingerprint())
      throw UsageError("{} = \"{}\" was made by another tokenizer than the model's ({}); name the text instead", key,
                       where, tokenizer.name());
    return file;
  }
  const TextFiles sources = find_text_files(where, key);
  const std::string path = join_path(cache_dir, cached_name(sources, tokenizer.to_json()));
  if (!exists(fs, path)) {
    make_folders(fs, cache_dir);
    TextMeter meter{progress, sources.total_bytes};
    build(fs, sources, tokenizer, path, key, meter);
  }
  return std::make_shared<const TokenFile>(path, fs);
}

Dataset open_dataset(FileSystem& fs, const DatasetOptions& options, TextProgress progress) {
  if (!(options.valid_fraction >= 0 && options.valid_fraction < 1))
    throw UsageError("data.valid_fraction = {}: write a number from 0 up to, not including, 1",
                     options.valid_fraction);
  if (options.kind == ExampleKind::prompts) return open_prompts(fs, options, progress);
  auto [train, tokenizer] = open_train(fs, options, progress);
  Dataset dataset;
  dataset.tokenizer = std::move(tokenizer);
  const int64_t tokens = train->num_tokens();
  if (options.valid.empty()) {
    const int64_t split = split_at(*train, int64_t(std::floor(double(tokens) * (1.0 - options.valid_fraction))));
    dataset.train = {train, 0, split};
    dataset.valid = {train, split, tokens};
  } else {
    const auto valid =
        holds_examples(options.valid, options)
            ? open_examples(fs, options.valid, *dataset.tokenizer, options, "data.valid", progress)
            : open_tokens(fs, options.valid, *dataset.tokenizer, options.cache_dir, "data.valid", progress);
    dataset.train = {train, 0, tokens};
    dataset.valid = {valid, 0, valid->num_tokens()};
  }
  return dataset;
}

std::string Dataset::fingerprint() const {
  if (train.file) return fmt::format("{:016x} {} {}", train.file->content_fingerprint(), train.begin, train.end);
  Digester digester;
  for (const Prompt& prompt : prompts) digester.update(bytes_of(prompt.example + "\n"));
  return digester.finish().to_hex();
}

}  // namespace weft
