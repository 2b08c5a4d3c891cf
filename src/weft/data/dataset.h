// Dataset: from what a recipe's [data] names to tokens for training and validation, built once and cached.
#pragma once
#include <memory>
#include <string>

#include "weft/data/prompts.h"
#include "weft/data/text_pieces.h"
#include "weft/data/token_file.h"
#include "weft/text/tokenizer.h"

namespace weft {

// What the examples of a data set are.
// scored_pairs: of which each text as a whole has a score; classes: texts that are of one of `labels` classes.
// prompts: of which answers are made and scored while a model is trained.
enum class ExampleKind : uint8_t { answers, pairs, labelled, scored_pairs, classes, prompts };

struct DatasetOptions {
  std::string train;                                  // FILE, DIR, pattern, or a .tok file
  std::string valid;                                  // the same; empty: the last part of `train`
  double valid_fraction = 0.1;                        // of the tokens of `train`, when `valid` is empty
  std::string tokenizer = "byte";                     // "byte", "char" or what text/tokenizer_files.h opens
  std::string cache_dir;                              // where token files are kept
  std::shared_ptr<const Tokenizer> opened = nullptr;  // when set, counts instead of `tokenizer`
  std::string format = "auto";  // "text"; "chat", "alpaca" or "completion"; "auto": .json and .jsonl are examples
  std::string chat_template;    // Jinja; empty: a plain one
  std::string chat_source;      // where it is from, for messages
  ExampleKind kind = ExampleKind::answers;  // of pairs, token files are as PairBatches wants them
  int64_t labels = 0;                       // of classes
};

struct Dataset {
  std::shared_ptr<const Tokenizer> tokenizer;
  TokenPart train;
  TokenPart valid;                             // empty when valid_fraction is 0
  std::vector<Prompt> prompts, valid_prompts;  // in place of tokens, of ExampleKind::prompts

  // Of what there is to train on and its order, wherever it lies.
  std::string fingerprint() const;
};

// When many ranks share cache_dir, let one of them call this first.
Dataset open_dataset(FileSystem& fs, const DatasetOptions& options, TextProgress progress);

// The tokens of a text by a given tokenizer, such as a checkpoint's, from the cache or built into it. `key` is the
// config key or command-line option that errors name.
std::shared_ptr<const TokenFile> open_tokens(FileSystem& fs, const std::string& where, const Tokenizer& tokenizer,
                                             const std::string& cache_dir, std::string_view key,
                                             TextProgress progress);

}  // namespace weft
