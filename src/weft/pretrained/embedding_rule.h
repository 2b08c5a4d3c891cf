// EmbeddingRule: how a vector of a text is made of a model's hidden states, as its files say.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weft/pretrained/dense_layers.h"

namespace weft {

class GgufFile;
class GgufMetadata;
class FileSystem;

// Of the hidden states of a text's tokens, behind the last norm: the last one; the first, of a model whose first
// token sees all; their mean; or their mean where the i-th counts i times, so that those which saw more say more
// (Muennighoff, "SGPT: GPT Sentence Embeddings for Semantic Search", 2022).
enum class Pooling : uint8_t { last, first, mean, weighted_mean };

// How much the hidden state of the i-th of a text's tokens counts, from 0, and all of them together.
constexpr double weight_of(Pooling pooling, int64_t i, int64_t count) {
  switch (pooling) {
    case Pooling::last: return i + 1 == count ? 1 : 0;
    case Pooling::first: return i == 0 ? 1 : 0;
    case Pooling::mean: return 1;
    case Pooling::weighted_mean: return double(i + 1);
  }
  return 0;
}
constexpr double weights_of(Pooling pooling, int64_t count) {
  if (pooling == Pooling::mean) return double(count);
  return pooling == Pooling::weighted_mean ? double(count) * double(count + 1) / 2 : 1;
}

struct EmbeddingRule {
  Pooling pooling = Pooling::last;
  std::vector<DenseLayer> dense;               // what it then goes through
  bool normalises = true;                      // to length 1, in the end
  std::map<std::string, std::string> prompts;  // by name: what is written before a text
  std::string default_prompt;                  // the name of the one that is, where a request names none; empty: none
  std::string unknown;                         // what its files ask for that weft does not do; empty: nothing

  bool operator==(const EmbeddingRule&) const = default;
};

// "last", "first", "mean", "weighted_mean".
std::string_view name_of(Pooling pooling);
// Throws UsageError naming `option` and the choices.
Pooling parse_pooling(std::string_view option, std::string_view name);

// "document, query"; empty: there are none.
std::string prompt_names(const EmbeddingRule& rule);
// "vectors of texts are means of hidden states, of length 1", or why there are none.
std::string to_text(const EmbeddingRule& rule);

// Of a folder as sentence-transformers writes it: modules.json, the folders of modules that it names, and
// config_sentence_transformers.json. Without these, `otherwise` and the length 1. Throws Error naming what is
// malformed.
EmbeddingRule read_embedding_rule(const std::string& folder, Pooling otherwise = Pooling::last);
// Nothing where it is what would be read without files, or has something unknown. hidden: the elements of a vector,
// before `dense`, whose weights are written as well.
void write_embedding_rule(const EmbeddingRule& rule, int64_t hidden, const std::string& folder, FileSystem& fs,
                          Pooling otherwise = Pooling::last);

// Of the key "ARCHITECTURE.pooling_type", as llama.cpp has it, `otherwise` where it says none; and of the tensors
// dense_2 and dense_3.
EmbeddingRule read_gguf_embedding_rule(const GgufFile& file, Pooling otherwise = Pooling::last);
// Gives whether the file then says all of it, with the tensors that gguf_dense_names tells.
bool write_gguf_embedding_rule(GgufMetadata& metadata, std::string_view architecture, const EmbeddingRule& rule,
                               Pooling otherwise = Pooling::last);
// What an architecture's files call the weights of each of these layers; empty where they cannot have them.
std::vector<std::string> gguf_dense_names(std::string_view architecture, std::span<const DenseLayer> layers);
inline constexpr std::string_view kGgufDense[] = {"dense_2.weight", "dense_3.weight"};

}  // namespace weft
